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

from autodo.data.background import in_background
from autodo.data.examples import Examples
from autodo.data.joined import Joined, Parts
from autodo.data.map_images import MapImages
from autodo.data.pixels import to_unit
from autodo.data.randomness import borrowed, derive
from autodo.data.workers import Request, Workers

Batch = tuple[Tensor, Tensor, Tensor]
"""images (B, C, H, W) float32, labels (B,) int64, index (B,) int64, all on the device."""


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
            self._workers = Workers(self.dataset, num_workers)
        self.labels = dataset.labels.to(self.device)
        self._resident = None
        limit = _limit(self.device) if limit is None else limit
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
            parts, index = self.dataset, index.cpu()
            return to_unit(self.send(parts.images_at(index, self._room(parts, index))))
        return to_unit(self.send(_stack(self.dataset, index)))

    def batches(
        self,
        batch_size: int,
        *,
        seed: int | None,
        drop_last: bool = False,
        points: int | Tensor | None = None,
        balanced: bool = False,
    ) -> Iterator[Batch]:
        """One pass: in order when ``seed`` is None, else in the random order of ``seed``.

        ``points`` limits the pass to the first so many points of the set, or to those of an index
        (P,) on the host. ``balanced`` draws as many with replacement instead, every class equally
        often by its labels.
        """
        points = len(self) if points is None else points
        among = points if isinstance(points, Tensor) else torch.arange(points)
        size = len(among)
        if seed is None:
            order = among
        elif balanced:
            order = among[_balanced(self.labels.cpu()[among], seed)]
        else:
            order = among[_shuffled(size, seed)]
        full = size // batch_size * batch_size if drop_last else size
        parts = order[:full].split(batch_size) if full else ()
        requests = ((derive(seed or 0, k), part) for k, part in enumerate(parts))
        return self._read(requests, min(batch_size, size))

    def sampler(self, batch_size: int, seed: int) -> Iterator[Batch]:
        """Batches without end, each full (at most the whole set), reshuffled at every pass.

        A pass leaves out the points that do not fill a batch; they differ from pass to pass.
        """
        size = min(batch_size, len(self))
        per_pass = len(self) // size

        def requests() -> Iterator[Request]:
            for pass_number in count():
                order = _shuffled(len(self), derive(seed, pass_number))
                for k, part in enumerate(order[: size * per_pass].split(size)):
                    yield derive(seed, pass_number, k), part

        return self._read(requests(), size)

    def _read(self, requests: Iterator[Request], batch_size: int) -> Iterator[Batch]:
        if self._resident is not None:
            for _, index in requests:
                index = self.send(index)
                yield self.fetch(index), self.labels[index], index
            return
        for images, index in self._on_host(requests, batch_size):
            index = self.send(index)
            yield to_unit(self.send(images)), self.labels[index], index

    def _on_host(
        self, requests: Iterator[Request], batch_size: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """(images, index) of each request on the CPU, images as the dataset gives them.

        A thread copies them into room that is made, and pinned, here; it makes no device calls.
        """
        data = self.dataset
        if isinstance(data, Parts):
            parts = data

            def gather(index: Tensor, room: Tensor) -> tuple[Tensor, Tensor]:
                return parts.images_at(index, room), index

            wanted = ((index, self._room(parts, index)) for _, index in requests)
            return in_background(gather, wanted)
        if self._workers is None:
            return (_read_items(data, *request) for request in requests)

        def copy(shared: Tensor, index: Tensor, room: Tensor) -> tuple[Tensor, Tensor]:
            return room.copy_(shared), index

        read = self._workers.read(requests, batch_size)
        return in_background(copy, ((*batch, self._room(data, batch[1])) for batch in read))

    def _room(self, data: MapImages | Joined | Parts, index: Tensor) -> Tensor:
        shape = (len(index), *data.image_shape)
        return torch.empty(shape, dtype=data.image_dtype, pin_memory=self.device.type == "cuda")

    def send(self, tensor: Tensor) -> Tensor:
        """To the device; pinned first where that spares waiting for all queued work."""
        if self.device.type == "cuda" and not tensor.is_cuda:
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)


def _read_items(dataset: MapImages | Joined, seed: int, index: Tensor) -> tuple[Tensor, Tensor]:
    with borrowed(seed):
        return _stack(dataset, index), index


def _limit(device: torch.device) -> int:
    """Bytes of images that a device takes."""
    if device.type != "cuda":
        return HOST_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) // 2


def _stack(dataset: MapImages | Joined, index: Tensor) -> Tensor:
    return torch.stack([dataset[i][0] for i in index.tolist()])


def _shuffled(size: int, seed: int) -> Tensor:
    """A permutation drawn on the CPU, hence the same for every device."""
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed))


def _balanced(labels: Tensor, seed: int) -> Tensor:
    """As many draws as labels (N,), with the same expected number of every class that occurs."""
    weight = 1 / torch.bincount(labels).double()[labels]
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(weight, len(labels), replacement=True, generator=generator)
