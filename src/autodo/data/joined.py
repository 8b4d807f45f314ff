"""Train and trusted as one set, for the runs in which the trusted points are trained on too."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from autodo.data import wording
from autodo.data.examples import Examples
from autodo.data.map_images import MapImages
from autodo.data.pixels import to_unit
from autodo.errors import InputError


@dataclass(frozen=True, eq=False)
class Joined:
    """The examples of ``first``, then those of ``second``, read item by item."""

    first: Examples | MapImages
    second: Examples | MapImages

    @property
    def labels(self) -> Tensor:
        """(N + M,), int64."""
        return torch.cat([self.first.labels, self.second.labels])

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        split = len(self.first)
        image, label = self.first[i] if i < split else self.second[i - split]
        return to_unit(image), label


@dataclass(frozen=True, eq=False)
class Parts:
    """In-memory or memory-mapped sets one after the other, none of them copied.

    >>> one = Examples.from_arrays(torch.zeros(2, 1, 1, 1, dtype=torch.uint8), [0, 1])
    >>> both = Parts((one, one))
    >>> len(both), both.labels, both.images_at(torch.tensor([3, 0])).shape
    (4, tensor([0, 1, 0, 1]), torch.Size([2, 1, 1, 1]))
    """

    sets: tuple[Examples, ...]

    @property
    def labels(self) -> Tensor:
        """(N,), int64."""
        return torch.cat([data.labels for data in self.sets])

    def __len__(self) -> int:
        return sum(len(data) for data in self.sets)

    @property
    def dtype(self) -> torch.dtype:
        """That of the images; float32 where the sets differ."""
        kinds = {data.images.dtype for data in self.sets}
        return kinds.pop() if len(kinds) == 1 else torch.float32

    @property
    def nbytes(self) -> int:
        """Of all images."""
        shape = self.sets[0].image_shape
        return len(self) * torch.Size(shape).numel() * self.dtype.itemsize

    def whole(self, device: torch.device) -> Tensor:
        """All images (N, C, H, W) on a device."""
        return torch.cat([self._typed(data.images).to(device) for data in self.sets])

    def images_at(self, index: Tensor, *, pinned: bool = False) -> Tensor:
        """Images (B, C, H, W) of ``index`` (B,), which is on the host, as they are to be."""
        shape = (len(index), *self.sets[0].image_shape)
        out = torch.empty(shape, dtype=self.dtype, pin_memory=pinned)
        start = 0
        for data in self.sets:
            chosen = ((index >= start) & (index < start + len(data))).nonzero().flatten()
            if len(chosen) == len(index) and data.images.dtype == self.dtype:
                torch.index_select(data.images, 0, index - start, out=out)
            elif len(chosen):
                images = data.images.index_select(0, index[chosen] - start)
                out.index_copy_(0, chosen, self._typed(images))
            start += len(data)
        return out

    def _typed(self, images: Tensor) -> Tensor:
        return images if images.dtype == self.dtype else to_unit(images)


def join(first: Examples | MapImages, second: Examples | MapImages) -> Parts | Joined:
    """Both sets as one, which must have the same shape of images and the same classes."""
    if first.image_shape != second.image_shape or first.class_names != second.class_names:
        a, b = (len(data.class_names) for data in (first, second))
        raise InputError(
            f"cannot join images of shape {first.image_shape} in {a} classes "
            f"with images of shape {second.image_shape} in {b} classes",
            f"shapes and class names must be the same: {wording.some(first.class_names)} "
            f"against {wording.some(second.class_names)}",
            "bring both sets to one image size and one list of class names",
        )
    if isinstance(first, Examples) and isinstance(second, Examples):
        return Parts((first, second))
    return Joined(first, second)
