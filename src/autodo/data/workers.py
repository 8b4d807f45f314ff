"""Processes that read batches of a dataset, kept from pass to pass.

Starting a process per core takes longer than many a pass over a small set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class Workers:
    """``count`` processes in which ``dataset[request]`` is evaluated for any requests."""

    def __init__(self, dataset: Dataset, count: int, *, pinned: bool) -> None:
        self.dataset, self.count, self.pinned = dataset, count, pinned
        self._idle: list[tuple[DataLoader, _Requests]] = []

    def read(self, requests: Iterable[Any]) -> Iterator[Any]:
        """``dataset[request]`` of each, in order; passes may run side by side.

        Processes of a pass that was left early end with it: they hold what nobody will ask for.
        """
        loader, sampler = self._idle.pop() if self._idle else self._start()
        sampler.requests = requests
        yield from loader
        self._idle.append((loader, sampler))

    def _start(self) -> tuple[DataLoader, _Requests]:
        sampler = _Requests()
        loader: DataLoader = DataLoader(
            self.dataset,
            batch_size=None,  # a request is for a whole batch
            sampler=sampler,
            num_workers=self.count,
            pin_memory=self.pinned,
            generator=torch.Generator(),  # its own, or it would draw from the global one
            persistent_workers=True,
        )
        return loader, sampler


class _Requests(Sampler[Any]):
    """What the next pass asks for."""

    def __init__(self) -> None:
        self.requests: Iterable[Any] = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.requests)
