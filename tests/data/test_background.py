"""Work a few items ahead: in order, overlapping, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import count, islice

import pytest

from autodo.data.background import in_background

WAIT = 30
"""Seconds after which a thread that should have answered never will."""


def ones(items: Iterable[int]) -> Iterator[tuple[int]]:
    return ((item,) for item in items)


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("autodo")]


def test_order_is_kept_for_any_depth() -> None:
    for depth in range(4):
        assert list(in_background(lambda x: x * x, ones(range(6)), depth=depth)) == [
            0,
            1,
            4,
            9,
            16,
            25,
        ]
    assert list(in_background(abs, ones([]))) == []


def test_the_next_item_is_worked_on_while_the_caller_has_the_last() -> None:
    begun = [threading.Event() for _ in range(8)]
    allowed = [threading.Event() for _ in range(8)]

    def work(k: int) -> int:
        begun[k].set()
        assert allowed[k].wait(WAIT)
        return k

    allowed[0].set()
    for k in in_background(work, ones(range(8))):
        if k < 7:
            assert begun[k + 1].wait(WAIT)  # it has not been asked for yet
            allowed[k + 1].set()


def test_items_are_drawn_on_the_callers_thread_and_no_more_than_needed() -> None:
    drawn: list[threading.Thread] = []

    def items() -> Iterator[int]:
        for k in count():
            drawn.append(threading.current_thread())
            yield k

    workers: set[threading.Thread] = set()

    def work(k: int) -> int:
        workers.add(threading.current_thread())
        return k

    assert list(islice(in_background(work, ones(items()), depth=2), 5)) == list(range(5))
    assert set(drawn) == {threading.current_thread()}
    assert len(drawn) == 7
    assert len(workers) == 1
    assert threading.current_thread() not in workers


def test_an_error_comes_in_its_turn() -> None:
    def work(k: int) -> int:
        if k == 2:
            raise OSError("disk gone")
        return k

    results = in_background(work, ones(range(9)))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(OSError, match="disk gone"):
        next(results)
    assert ours() == []


def test_nothing_is_left_running() -> None:
    list(in_background(abs, ones(range(3))))
    assert ours() == []
    left = in_background(abs, ones(count()))
    next(left)
    assert len(ours()) == 1
    left.close()  # type: ignore[attr-defined]
    assert ours() == []

    def interrupted() -> None:
        for k in in_background(abs, ones(count())):
            if k == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        interrupted()
    caught.value.__traceback__ = None
    del caught
    assert ours() == []


def test_what_waits_is_not_begun_after_the_end() -> None:
    begun: list[int] = []
    first, go = threading.Event(), threading.Event()

    def work(k: int) -> int:
        begun.append(k)
        if k == 1:
            first.set()
            assert go.wait(WAIT)
        return k

    batches = in_background(work, ones(range(9)), depth=3)
    next(batches)
    assert first.wait(WAIT)
    threading.Timer(0.05, go.set).start()
    batches.close()  # type: ignore[attr-defined]
    assert begun == [0, 1]


def test_an_iterator_that_outlives_the_program_ends_it_without_a_word() -> None:
    program = (
        "from itertools import repeat\n"
        "from autodo.data.background import in_background\n"
        "results = in_background(abs, repeat((-1,)))\n"
        "print(next(results))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT, check=True
    )
    assert ended.stdout == "1\n"
    assert ended.stderr == ""
