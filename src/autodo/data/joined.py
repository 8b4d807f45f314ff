"""Train and trusted as one set, for the runs in which the trusted points are trained on too."""

from __future__ import annotations

from collections.abc import Iterable
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
    """The examples of ``first``, then those of ``second``, read item by item.

    Images are uint8 where both sets have them so, else float32.
    """

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
        return image if self.image_dtype == torch.uint8 else to_unit(image), label

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(C, H, W) of every image."""
        return self.first.image_shape

    @property
    def image_dtype(self) -> torch.dtype:
        """uint8 or float32."""
        return _common(_dtype(data) for data in (self.first, self.second))


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
    def image_shape(self) -> tuple[int, ...]:
        """(C, H, W) of every image."""
        return self.sets[0].image_shape

    @property
    def image_dtype(self) -> torch.dtype:
        """uint8 or float32; float32 where the sets differ."""
        return _common(data.images.dtype for data in self.sets)

    @property
    def nbytes(self) -> int:
        """Of all images."""
        return len(self) * torch.Size(self.image_shape).numel() * self.image_dtype.itemsize

    def whole(self, device: torch.device) -> Tensor:
        """All images (N, C, H, W) on a device."""
        return torch.cat([self._typed(data.images).to(device) for data in self.sets])

    def images_at(self, index: Tensor, out: Tensor | None = None) -> Tensor:
        """Images (B, C, H, W) of ``index`` (B,), which is on the host, written to ``out``."""
        if out is None:
            out = torch.empty((len(index), *self.image_shape), dtype=self.image_dtype)
        if not len(index):
            return out
        sizes = torch.tensor([len(data) for data in self.sets])
        ends = sizes.cumsum(0)
        owner = torch.bucketize(index, ends, right=True)
        local = index - (ends - sizes)[owner]
        # All at once from the set that most are of, though some be wrong; then those one by one.
        most = int(owner.bincount().argmax())
        rest = owner != most
        if self.sets[most].images.dtype == self.image_dtype:
            _take(self.sets[most].images, local.masked_fill(rest, 0), out)
        else:
            rest = torch.ones_like(rest)
        for k in rest.nonzero().flatten().tolist():
            out[k] = self._typed(self.sets[owner[k]].images[local[k]])
        return out

    def _typed(self, images: Tensor) -> Tensor:
        return images if images.dtype == self.image_dtype else to_unit(images)


def _take(images: Tensor, index: Tensor, out: Tensor) -> None:
    """images[index] into ``out``.

    torch copies rows side by side on several threads if they have fewer than 32,768 elements, and
    otherwise one after the other, each in small shares: as words of eight bytes photographs
    have few enough.
    """
    pair = images, out
    if all(tensor.is_contiguous() and _in_words(tensor) for tensor in pair):
        images, out = (tensor.flatten(1).view(torch.int64) for tensor in pair)
    torch.index_select(images, 0, index, out=out)


def _in_words(images: Tensor) -> bool:
    """Whether every image starts and ends at a word of eight bytes of its storage."""
    size = images.dtype.itemsize
    return images[0].numel() * size % 8 == 0 and images.storage_offset() * size % 8 == 0


def _dtype(data: Examples | MapImages) -> torch.dtype:
    return data.images.dtype if isinstance(data, Examples) else data.image_dtype


def _common(kinds: Iterable[torch.dtype]) -> torch.dtype:
    found = set(kinds)
    return found.pop() if len(found) == 1 else torch.float32


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
