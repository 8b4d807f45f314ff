"""Decisions on the disk: they only grow, survive whatever happens, and have one writer."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from autodo.errors import InputError, RunFolderError
from autodo.export.decisions import Decision, read, standing
from autodo.review.log import Log


def opened(run: Path) -> Log:
    return Log(run, count=100, num_classes=10)


def decisions(run: Path) -> list[Decision]:
    return read(run, count=100, num_classes=10)


def test_a_decision_is_in_the_file_when_add_returns(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.add(Decision(index=3, action="accept", label=1))
        assert decisions(tmp_path) == [Decision(index=3, action="accept", label=1)]


def test_what_holds_is_what_export_reads(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.add(Decision(index=3, action="accept", label=1))
        log.add(Decision(index=4, action="keep", label=2))
        line = log.add(Decision(index=3, action="unusable"))
        log.add(Decision(index=4, action="label", label=7))
        assert log.undo(3, line) == 4
        held = {d.index: d for d in log.holding()}
        last = log.last()
    assert held == standing(decisions(tmp_path))
    assert last == (3, 4)
    with opened(tmp_path) as again:
        assert {d.index: d for d in again.holding()} == held
        assert len(again) == 5


def test_undo_spares_what_another_tab_decided_since(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        first = log.add(Decision(index=3, action="keep", label=1))
        log.add(Decision(index=3, action="unusable"))
        assert log.undo(3, first) is None
        assert log.undo(50, 0) is None
        assert log.standing(3) == Decision(index=3, action="unusable")


@pytest.mark.parametrize("torn", ['{"index": 5, "act', "x" * 9000])
def test_a_torn_last_line_is_dropped_and_the_next_is_whole(tmp_path: Path, torn: str) -> None:
    file = tmp_path / "decisions.jsonl"
    whole = Decision(index=1, action="keep", label=0)
    file.write_text(whole.line() + "\n" + torn)
    with opened(tmp_path) as log:
        log.add(Decision(index=2, action="unusable"))
    assert decisions(tmp_path) == [whole, Decision(index=2, action="unusable")]


def test_a_file_of_one_torn_line_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "decisions.jsonl").write_text('{"index"')
    with opened(tmp_path) as log:
        assert len(log) == 0
        log.add(Decision(index=2, action="unusable"))
    assert decisions(tmp_path) == [Decision(index=2, action="unusable")]


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as log:
        log.add(Decision(index=1, action="unusable"))
        write = os.write
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", lambda file, data: write(file, data[:9]))
            with pytest.raises(OSError, match="No space left"):
                log.add(Decision(index=2, action="unusable"))
        assert len(log) == 1
        assert log.standing(2) is None
        log.add(Decision(index=3, action="unusable"))
    assert [d.index for d in decisions(tmp_path)] == [1, 3]


def test_lines_of_many_threads_do_not_mix(tmp_path: Path) -> None:
    with opened(tmp_path) as log:

        def work(index: int) -> None:
            for label in range(10):
                log.add(Decision(index=index, action="label", label=label))

        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    made = decisions(tmp_path)
    assert len(made) == 80
    for index in range(8):
        assert [d.label for d in made if d.index == index] == list(range(10))


def test_a_second_review_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(RunFolderError, match="being reviewed already"):
        opened(tmp_path)
    with opened(tmp_path) as log:
        assert len(log) == 0


def test_a_spoilt_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "decisions.jsonl"
    file.write_text("not a decision\n")
    with pytest.raises(InputError, match="line 1 of"):
        opened(tmp_path)
    assert file.read_text() == "not a decision\n"
    file.unlink()
    opened(tmp_path).__exit__()
