"""Batches on the device, in an order that is a function of a seed alone.

In-memory sets live on the device whole, as uint8 or float32, where they fit, and a batch is one
indexing operation; where they do not, a thread gathers a few batches ahead on the host, into
pinned memory, from which they are sent without waiting. Other sets are read item by item, in worker
processes on request. Order and the items' own randomness depend on the seed and the number
of the batch only, not on the device, the workers or what ran before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from autodo.data.background import in_background
from autodo.data.examples import Examples
from autodo.data.joined import Joined, Parts
from autodo.data.map_images import MapImages
from autodo.data.pixels import to_unit
from autodo.data.randomness import borrowed, derive
from autodo.data.workers import Workers
from autodo.errors import InputError

Batch = tuple[Tensor, Tensor, Tensor]
"""images (B, C, H, W) float32, labels (B,) int64, index (B,) int64, all on the device."""

_Request = tuple[int, Tensor]
"""The seed under which the items of a batch are read, and its index (B,) on the CPU."""

_Failure = tuple[str, str, str]
"""fact, cause and cure of an error met in a worker."""


HOST_BYTES = 2 << 30
"""On a CPU, sets up to this size are laid out as one tensor; larger ones stay where they are."""


class Loader:
    """Draws batches of a dataset onto a device.

    ``limit`` is how many bytes of images may live on the device; unless told, half of what is free
    on CUDA.
    """

    def __init__(
        self,
        dataset: Examples | MapImages | Joined | Parts,
        device: torch.device | str,
        *,
        num_workers: int = 0,
        limit: int | None = None,
    ) -> None:
        self.dataset = Parts((dataset,)) if isinstance(dataset, Examples) else dataset
        self.device = torch.device(device)
        self._workers: Workers | None = None
        if num_workers > 0 and not isinstance(self.dataset, Parts):
            pinned = self.device.type == "cuda"
            self._workers = Workers(_Batches(self.dataset), num_workers, pinned=pinned)
        self.labels = dataset.labels.to(self.device)
        self._resident = None
        limit = _room(self.device) if limit is None else limit
        if isinstance(self.dataset, Parts) and self.dataset.nbytes <= limit:
            self._resident = self.dataset.whole(self.device)

    def __len__(self) -> int:
        return len(self.dataset)

    def fetch(self, index: Tensor) -> Tensor:
        """Images (B, C, H, W) of ``index`` (B,) as float32 on the device; uint8 becomes [0, 1].

        Items of MapImages draw from the global random state as it is.
        """
        if self._resident is not None:
            return to_unit(self._resident[self.send(index)])
        if isinstance(self.dataset, Parts):
            index = index.cpu()
            return to_unit(self.send(self.dataset.images_at(index, self._room_for(index))))
        return to_unit(self.send(_stack(self.dataset, index)))

    def batches(
        self,
        batch_size: int,
        *,
        seed: int | None,
        drop_last: bool = False,
        points: int | None = None,
        balanced: bool = False,
    ) -> Iterator[Batch]:
        """One pass: in order when ``seed`` is None, else in the random order of ``seed``.

        ``points`` limits the pass to the first so many points of the set. ``balanced`` draws as
        many with replacement instead, every class equally often by its labels.
        """
        size = len(self) if points is None else points
        if seed is None:
            order = torch.arange(size)
        elif balanced:
            order = _balanced(self.labels[:size].cpu(), seed)
        else:
            order = _shuffled(size, seed)
        full = size // batch_size * batch_size if drop_last else size
        parts = order[:full].split(batch_size) if full else ()
        return self._read((derive(seed or 0, k), part) for k, part in enumerate(parts))

    def sampler(self, batch_size: int, seed: int) -> Iterator[Batch]:
        """Batches without end, each full (at most the whole set), reshuffled at every pass.

        A pass leaves out the points that do not fill a batch; they differ from pass to pass.
        """
        size = min(batch_size, len(self))
        per_pass = len(self) // size

        def requests() -> Iterator[_Request]:
            for pass_number in count():
                order = _shuffled(len(self), derive(seed, pass_number))
                for k, part in enumerate(order[: size * per_pass].split(size)):
                    yield derive(seed, pass_number, k), part

        return self._read(requests())

    def _read(self, requests: Iterator[_Request]) -> Iterator[Batch]:
        if self._resident is not None:
            for _, index in requests:
                index = self.send(index)
                yield self.fetch(index), self.labels[index], index
            return
        for images, index in self._on_host(requests):
            index = self.send(index)
            yield to_unit(self.send(images)), self.labels[index], index

    def _on_host(self, requests: Iterator[_Request]) -> Iterator[tuple[Tensor, Tensor]]:
        """(images, index) of each request on the CPU, images as the dataset gives them."""
        if isinstance(self.dataset, Parts):
            return self._gathered(self.dataset, requests)
        if self._workers is None:
            return map(_Batches(self.dataset).read, requests)
        asked = ((seed, index.tolist()) for seed, index in requests)
        return map(_raise_failure, self._workers.read(asked))

    def _gathered(
        self, parts: Parts, requests: Iterator[_Request]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Copied by a thread, into room made here: the thread asks nothing of the device."""

        def gather(room: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            index, images = room
            return parts.images_at(index, images), index

        return in_background(gather, ((index, self._room_for(index)) for _, index in requests))

    def _room_for(self, index: Tensor) -> Tensor:
        assert isinstance(self.dataset, Parts)
        return self.dataset.room(len(index), pinned=self.device.type == "cuda")

    def send(self, tensor: Tensor) -> Tensor:
        """To the device; pinned first where that spares waiting for all queued work."""
        if self.device.type == "cuda" and not tensor.is_cuda:
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)


class _Batches(Dataset):
    """A dataset whose items are batches: the index of an item is the request itself."""

    def __init__(self, dataset: MapImages | Joined) -> None:
        self.dataset = dataset

    def read(self, request: _Request) -> tuple[Tensor, Tensor]:
        seed, index = request
        with borrowed(seed):
            return _stack(self.dataset, index), index

    def __getitem__(self, request: tuple[int, list[int]]) -> tuple[Tensor, Tensor] | _Failure:
        try:
            return self.read((request[0], torch.tensor(request[1])))
        except InputError as error:
            # Handed over, not raised: PyTorch re-raises workers' errors as a RuntimeError.
            return error.fact, error.cause, error.cure


def _raise_failure(item: tuple[Tensor, Tensor] | _Failure) -> tuple[Tensor, Tensor]:
    if len(item) == 3:
        raise InputError(*item)
    return item


def _room(device: torch.device) -> int:
    """Bytes of images that a device takes."""
    if device.type != "cuda":
        return HOST_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) // 2


def _stack(dataset: MapImages | Joined, index: Tensor) -> Tensor:
    # In a worker process this stacks into memory that the main process shares: one copy less.
    images: Tensor = default_collate([dataset[i][0] for i in index.tolist()])
    return images


def _shuffled(size: int, seed: int) -> Tensor:
    """A permutation drawn on the CPU, hence the same for every device."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed))


def _balanced(labels: Tensor, seed: int) -> Tensor:
    """As many draws as labels (N,), with the same expected number of every class that occurs."""
    weight = 1 / torch.bincount(labels).double()[labels]
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(weight, len(labels), replacement=True, generator=generator)
