"""Worker processes: the same from pass to pass, and none left by a pass that ends early."""

from __future__ import annotations

import gc
import multiprocessing
import os
from itertools import count, islice

import pytest
from torch.utils.data import Dataset

from autodo.data.workers import Workers


class WhoReads(Dataset):
    """The request and the process that answers it."""

    def __getitem__(self, request: int) -> tuple[int, int]:
        if request == 13:
            raise OSError("disk gone")
        return request, os.getpid()


def processes() -> set[int | None]:
    gc.collect()
    return {child.pid for child in multiprocessing.active_children()}


def test_processes_are_kept_from_pass_to_pass() -> None:
    before = processes()
    workers = Workers(WhoReads(), 2, pinned=False)
    first, second = list(workers.read(range(8))), list(workers.read(iter(range(20, 28))))
    assert [request for request, _ in first + second] == [*range(8), *range(20, 28)]
    readers = {pid for _, pid in first}
    assert len(readers) == 2
    assert readers == {pid for _, pid in second} == processes() - before
    assert os.getpid() not in readers
    del workers
    assert processes() == before


def test_passes_side_by_side() -> None:
    workers = Workers(WhoReads(), 1, pinned=False)
    pairs = zip(workers.read(range(5)), workers.read(range(5, 10)), strict=True)
    assert [(a, b) for (a, _), (b, _) in pairs] == [(k, k + 5) for k in range(5)]
    assert [request for request, _ in workers.read([3, 1])] == [3, 1]


def test_a_pass_that_is_left_early_or_fails_takes_its_processes_along() -> None:
    before = processes()
    workers = Workers(WhoReads(), 1, pinned=False)
    assert [request for request, _ in islice(workers.read(count(20)), 3)] == [20, 21, 22]
    assert processes() == before
    with pytest.raises(OSError, match="disk gone"):
        list(workers.read([1, 13, 2]))
    assert processes() == before
    assert [request for request, _ in workers.read([2, 1])] == [2, 1]
