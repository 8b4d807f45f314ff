"""A labelled set of images held in memory, checked when it is made.

:class:`Examples` is what every source (digits, folders, files, arrays) returns and what
the loader keeps on the device. Its pixels may be mapped from a file of the cache. It is
itself a map-style dataset, so anything that reads PyTorch datasets reads it too. Immutable:
distortions give new sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autodo.data import pixels, wording
from autodo.data.labels import as_labels, check_range, count_classes, default_names
from autodo.errors import InputError

_CHUNK = 1024  # images whose pixels are checked at a time: bounds the temporary memory


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """A labelled set of images.

    >>> digits = Examples.from_arrays(np.zeros((3, 8, 8), dtype=np.uint8), [0, 1, 1])
    >>> len(digits), digits.image_shape, digits.class_names, digits.subset([2]).ids
    (3, (1, 8, 8), ('0', '1'), ('2',))
    """

    images: Tensor
    """(N, C, H, W), uint8 or float32."""
    labels: Tensor
    """(N,), int64, each in 0 .. num_classes - 1."""
    class_names: tuple[str, ...]
    """One name per class; a class may be without examples."""
    ids: tuple[str, ...] = ()
    """One per example: the file path, the Parquet file and row, or the index as text."""
    name: InitVar[str] = "examples"
    """What errors call this set; not kept."""

    def __post_init__(self, name: str) -> None:
        if not self.ids:
            object.__setattr__(self, "ids", tuple(str(i) for i in range(len(self.images))))
        self.check(name)

    @classmethod
    def from_arrays(
        cls,
        images: Any,
        labels: Any,
        class_names: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        *,
        name: str = "examples",
    ) -> Examples:
        """A set from numpy arrays or tensors.

        images: (N, C, H, W); (N, H, W, C) when the last axis is 1 or 3 long and the
        second is not; or (N, H, W). uint8 or any floating-point type. labels: (N,) integers.
        """
        images = pixels.as_images(images, where=name)
        labels = as_labels(labels, name=name)
        if class_names is None:
            class_names = default_names(count_classes(labels, name=name) if len(labels) else 0)
        return cls(
            images=images,
            labels=labels,
            class_names=tuple(str(c) for c in class_names),
            ids=tuple(str(i) for i in ids) if ids is not None else (),
            name=name,
        )

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(C, H, W) of every image."""
        return tuple(self.images.shape[1:])

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.images[i], int(self.labels[i])

    def subset(self, index: Tensor | np.ndarray | Sequence[int]) -> Examples:
        """The examples at ``index`` (M,), in that order, with their ids."""
        index = torch.as_tensor(index, dtype=torch.int64).cpu()
        ids = tuple(self.ids[i] for i in index.tolist())  # refuses what is out of range
        index = index % len(self)  # from the end where negative, as ids count
        return replace(
            self,
            # Whole images are copied, where self.images[index] would go pixel by pixel.
            images=self.images.index_select(0, index.to(self.images.device)),
            labels=self.labels[index.to(self.labels.device)],
            ids=ids,
        )

    def with_labels(self, labels: Tensor) -> Examples:
        """The same images with other labels (N,)."""
        return replace(self, labels=as_labels(labels, name="examples"))

    def check(self, name: str) -> None:
        """Raise what is wrong with the set, calling it ``name``."""
        images, labels, ids = self.images, self.labels, self.ids
        if images.ndim != 4 or images.dtype not in (torch.uint8, torch.float32):
            raise InputError(
                f"the images of {name} have shape {tuple(images.shape)} and type {images.dtype}",
                "Examples holds (N, C, H, W) of uint8 or float32",
                "use Examples.from_arrays, which converts",
            )
        if labels.ndim != 1 or labels.dtype != torch.int64:
            raise InputError(
                f"the labels of {name} have shape {tuple(labels.shape)} and type {labels.dtype}",
                "Examples holds class numbers, (N,) of int64",
                "use Examples.from_arrays, which converts",
            )
        if not len(images) == len(labels) == len(ids):
            raise InputError(
                f"{name} has {wording.count(len(images), 'image')}, "
                f"{wording.count(len(labels), 'label')} and {wording.count(len(ids), 'id')}",
                "each image has one label and one id",
                "give as many of each",
            )
        if images.numel() == 0:
            raise InputError(
                f"{name} is empty: its images have shape {tuple(images.shape)}",
                "there is nothing to learn from",
                "check the path, or the filter that made this set",
            )
        check_range(labels, self.num_classes, name=name, ids=ids)
        if images.is_floating_point():
            pixels.check_finite(_nonfinite(images), name=name, ids=ids)


def _nonfinite(images: Tensor) -> list[tuple[int, int]]:
    """(index, how many pixels are NaN or infinite) of each such image of (N, C, H, W)."""
    bad = [(~part.isfinite()).flatten(1).sum(1) for part in images.split(_CHUNK)]
    counts = torch.cat(bad)
    return [(i, int(counts[i])) for i in counts.nonzero().flatten().tolist()]
