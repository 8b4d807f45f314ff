"""Worker processes: the same from pass to pass, and none left by a pass that ends early."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator
from itertools import count, islice

import pytest
import torch
from torch import Tensor

from autodo.data.background import DEPTH
from autodo.data.workers import Workers
from autodo.errors import InputError


class WhoReads:
    """Images of the index and of the process that reads it."""

    image_shape = (2,)
    image_dtype = torch.float32

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        if i == 13:
            raise InputError("train[13] cannot be read", "disk gone", "mend it")
        return torch.tensor([i, os.getpid()], dtype=torch.float32), 0


def requests(points: range | count | list[int], size: int = 2) -> Iterator[tuple[int, Tensor]]:
    numbers = iter(points)
    while part := list(islice(numbers, size)):
        yield 0, torch.tensor(part)


def processes() -> set[int | None]:
    gc.collect()
    return {child.pid for child in multiprocessing.active_children()}


def read(workers: Workers, points: range | list[int], size: int = 2) -> tuple[list[int], set[int]]:
    """The points as they come, and who read them; each image is looked at when it comes."""
    found: list[int] = []
    readers: set[int] = set()
    for images, index in workers.read(requests(points, size), size):
        assert images[:, 0].tolist() == index.tolist()
        found += index.tolist()
        readers |= {int(pid) for pid in images[:, 1].tolist()}
    return found, readers


def test_processes_are_kept_from_pass_to_pass() -> None:
    before = processes()
    workers = Workers(WhoReads(), 2)
    first, readers = read(workers, range(15, 40))
    second, again = read(workers, range(50, 60))
    assert first == list(range(15, 40))
    assert second == list(range(50, 60))
    assert len(readers) == 2
    assert readers == again == processes() - before
    assert os.getpid() not in readers
    assert read(workers, range(50, 60), 4)[1].isdisjoint(readers)  # larger batches need more room
    del workers
    assert processes() == before


def test_passes_side_by_side() -> None:
    workers = Workers(WhoReads(), 1)
    one, two = (workers.read(requests(range(k, k + 5)), 2) for k in (20, 30))
    for (a, at), (b, other) in zip(one, two, strict=True):
        assert a[:, 0].tolist() == at.tolist()
        assert b[:, 0].tolist() == other.tolist() == (at + 10).tolist()
    assert read(workers, [3, 1])[0] == [3, 1]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_batch_stays_whole_while_so_many_more_are_drawn(number: int) -> None:
    """Across the end of a pass, too, and however far ahead the processes are."""
    workers = Workers(WhoReads(), number)
    held: list[tuple[Tensor, Tensor]] = []
    for _ in range(4):
        for batch in workers.read(requests(range(20, 53)), 2):
            held = [*held, batch][-DEPTH - 1 :]
            assert all(images[:, 0].tolist() == index.tolist() for images, index in held)


def test_a_pass_that_is_left_early_or_fails_takes_its_processes_along() -> None:
    before = processes()
    workers = Workers(WhoReads(), 1)
    assert len(list(islice(workers.read(requests(count(20)), 2), 3))) == 3
    assert processes() == before
    with pytest.raises(InputError, match="disk gone"):
        read(workers, [1, 13, 2])
    assert processes() == before
    assert read(workers, [2, 1])[0] == [2, 1]
