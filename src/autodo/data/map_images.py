"""A user's own map-style dataset, read once for its labels and again for every batch.

:class:`MapImages` keeps no pixels: each access reads the item anew, so random
transforms stay alive. What one pass over the items tells (labels, shape,
fingerprints, everything that is wrong) is gathered by :func:`read_dataset`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset

from autodo.data import pixels, wording
from autodo.data.labels import as_label, check_range, settle_names
from autodo.data.randomness import borrowed
from autodo.errors import InputError

Progress = Callable[[int, int], object]


@dataclass(frozen=True, kw_only=True, eq=False)
class MapImages:
    """A dataset of (image, label) that has passed the checks, read item by item."""

    dataset: Any
    """The user's dataset."""
    labels: Tensor
    """(N,), int64: the labels of the checking pass."""
    class_names: tuple[str, ...]
    """One name per class."""
    ids: tuple[str, ...]
    """One per example: the file path where the dataset knows it, else the index as text."""
    image_shape: tuple[int, ...]
    """(C, H, W) of every image."""
    image_dtype: torch.dtype
    """uint8 or float32."""
    fingerprints: tuple[bytes, ...]
    """Of the images as the checking pass saw them, transforms included."""
    name: str
    """What errors call this set."""

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        """The image (C, H, W), read now, and its label."""
        where = wording.example(self.name, i, self.ids)
        image, _ = _read_item(self.dataset, i, where)
        if tuple(image.shape) != self.image_shape or image.dtype != self.image_dtype:
            raise InputError(
                f"the image of {where} is now {_kind(image)}, "
                f"but every image was {self.image_shape} {self.image_dtype} when first read",
                "a random transform of the dataset changes the shape or the type of images",
                "end the transforms with a resize or crop to one size",
            )
        return image, int(self.labels[i])


def read_dataset(
    dataset: Any,
    *,
    name: str,
    num_classes: int | None,
    class_names: Sequence[str] | None,
    progress: Progress | None,
) -> MapImages:
    """Read every item once, refuse what cannot be used, and wrap the rest."""
    total = len(dataset)
    ids = _ids(dataset, total)
    labels: list[int] = []
    fingerprints: list[bytes] = []
    nonfinite: list[tuple[int, int]] = []
    kinds: dict[str, tuple[int, str]] = {}
    with borrowed(0):  # the same pass every time, and none of the caller's random numbers used
        for i in range(total):
            where = wording.example(name, i, ids)
            image, label = _read_item(dataset, i, where)
            labels.append(label)
            fingerprints.append(pixels.fingerprint(image))
            seen, first = kinds.get(_kind(image), (0, where))
            kinds[_kind(image)] = (seen + 1, first)
            if image.is_floating_point() and not image.isfinite().all():
                nonfinite.append((i, int((~image.isfinite()).sum())))
            if progress is not None:
                progress(i + 1, total)

    pixels.check_same(kinds, name=name)
    pixels.check_finite(nonfinite, name=name, ids=ids)
    numbers = torch.tensor(labels, dtype=torch.int64)
    names = settle_names(
        numbers,
        getattr(_base(dataset), "classes", None),
        name=name,
        num_classes=num_classes,
        class_names=class_names,
    )
    check_range(numbers, len(names), name=name, ids=ids)
    return MapImages(
        dataset=dataset,
        labels=numbers,
        class_names=names,
        ids=ids,
        image_shape=tuple(image.shape),
        image_dtype=image.dtype,
        fingerprints=tuple(fingerprints),
        name=name,
    )


def _read_item(dataset: Any, i: int, where: str) -> tuple[Tensor, int]:
    try:
        item = dataset[i]
    except Exception as error:  # whatever the user's code raises, the reader needs to know where
        raise InputError(
            f"{where} cannot be read",
            f"the dataset raised {type(error).__name__}: {error}",
            "mend or remove that example",
        ) from error
    if not isinstance(item, tuple | list) or len(item) != 2:
        size = f", length {len(item)}" if hasattr(item, "__len__") else ""
        raise InputError(
            f"{where} is not a pair (image, label) but of type {type(item).__name__}{size}",
            "a dataset gives (image, label) for each index",
            "wrap it to return the two; arrays go through Examples.from_arrays(images, labels)",
        )
    return pixels.as_image(item[0], where=where), as_label(item[1], where=where)


def _kind(image: Tensor) -> str:
    return f"{tuple(image.shape)} {image.dtype}"


def _base(dataset: Any) -> Any:
    """The dataset below any number of Subsets, where class names and paths are."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


def _ids(dataset: Any, total: int) -> tuple[str, ...]:
    """The paths of a torchvision-like dataset (samples or imgs: (path, label)), else indices."""
    if isinstance(dataset, Subset):
        below = _ids(dataset.dataset, len(dataset.dataset))  # type: ignore[arg-type]
        return tuple(below[i] for i in dataset.indices)
    samples = getattr(dataset, "samples", None) or getattr(dataset, "imgs", None)
    if isinstance(samples, list | tuple) and len(samples) == total:
        paths = [s[0] for s in samples if isinstance(s, tuple | list) and len(s) == 2]
        if len(paths) == total and all(isinstance(path, str) for path in paths):
            return tuple(paths)
    return tuple(str(i) for i in range(total))
