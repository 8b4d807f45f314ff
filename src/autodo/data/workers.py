"""Processes that read batches of a dataset, kept from pass to pass.

They write images into memory that they share with this process from their start on. A batch
that came through a queue would be laid out in new memory each time, page by page, in the worker and
again here, which takes longer than reading it.
"""

from __future__ import annotations

import mmap
import multiprocessing
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import cycle
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from autodo.data.background import DEPTH
from autodo.data.randomness import borrowed
from autodo.errors import InputError

Request = tuple[int, Tensor]
"""The seed under which the items of a batch are read, and its index (B,) on the CPU."""

PREFETCH = 2
"""Batches that each process reads before they are asked for."""


class Items(Protocol):
    """A dataset whose images have one shape and one type."""

    @property
    def image_shape(self) -> tuple[int, ...]: ...
    @property
    def image_dtype(self) -> torch.dtype: ...
    def __getitem__(self, i: int) -> tuple[Tensor, int]: ...


class Workers:
    """``count`` processes that read ``items``."""

    def __init__(self, items: Items, count: int) -> None:
        self.items, self.count = items, count
        self._idle: list[_Team] = []

    def read(self, requests: Iterable[Request], batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(images, index) of each request of at most ``batch_size`` points, in order.

        Images are in shared memory, which is used again when more than DEPTH further batches have
        been drawn. Passes may run side by side. The processes of a pass that fails or is left early
        end with it: they have begun what nobody will ask for.
        """
        team = self._idle.pop() if self._idle else None
        if team is None or team.batch_size < batch_size:
            team = _Team(self.items, self.count, batch_size)
        yield from team.read(requests)
        self._idle = [team]


class _Team:
    """Processes, and the memory that they share with this one."""

    def __init__(self, items: Items, count: int, batch_size: int) -> None:
        self.batch_size = batch_size
        # Being read, the one that is being handed over, and those that were just handed over.
        slots = PREFETCH * count + 1 + DEPTH
        self.slots = shared_memory((slots, batch_size, *items.image_shape), items.image_dtype)
        self.turn = cycle(range(slots))
        self.sampler = _Asked()
        self.loader: DataLoader = DataLoader(
            _Reader(items, self.slots),
            batch_size=None,  # a request is for a whole batch
            sampler=self.sampler,
            num_workers=count,
            prefetch_factor=PREFETCH,
            generator=torch.Generator(),  # its own, or it would draw from the global one
            persistent_workers=True,
        )

    def read(self, requests: Iterable[Request]) -> Iterator[tuple[Tensor, Tensor]]:
        waiting: deque[tuple[int, Tensor]] = deque()
        self.sampler.requests = _in_slots(requests, self.turn, waiting)
        for failure in self.loader:
            if failure is not None:
                raise InputError(*failure)
            slot, index = waiting.popleft()
            yield self.slots[slot, : len(index)], index


def _in_slots(
    requests: Iterable[Request], slots: Iterator[int], waiting: deque[tuple[int, Tensor]]
) -> Iterator[tuple[int, list[int], int]]:
    """Each request with the next slot, as a process gets it; it is noted in ``waiting``."""
    for seed, index in requests:
        slot = next(slots)
        waiting.append((slot, index))
        yield seed, index.tolist(), slot


class _Asked(Sampler[Any]):
    """What the next pass asks for."""

    def __init__(self) -> None:
        self.requests: Iterable[Any] = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.requests)


class _Reader(Dataset):
    """What a process does for a request: seed, index and number of the slot to write to."""

    def __init__(self, items: Items, slots: Tensor) -> None:
        self.items, self.slots = items, slots

    def __getitem__(self, request: tuple[int, list[int], int]) -> tuple[str, str, str] | None:
        seed, index, slot = request
        try:
            with borrowed(seed):
                images = [self.items[i][0] for i in index]
            torch.stack(images, out=self.slots[slot, : len(index)])
        except InputError as error:
            # Handed over, not raised: PyTorch re-raises workers' errors as a RuntimeError.
            return error.fact, error.cause, error.cure
        return None


def shared_memory(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor that processes started from now on share with this one.

    >>> shared_memory((2, 3), torch.uint8).shape
    torch.Size([2, 3])
    """
    if multiprocessing.get_start_method() != "fork":
        return torch.empty(shape, dtype=dtype).share_memory_()
    # Forked processes inherit it; it takes nothing of /dev/shm, which containers keep small.
    size = torch.Size(shape).numel()
    return torch.frombuffer(mmap.mmap(-1, size * dtype.itemsize), dtype=dtype).view(shape)
