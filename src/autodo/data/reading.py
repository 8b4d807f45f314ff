"""What every source of images on a disk has in common: how to read, and what comes out.

A :class:`Source` knows which files it needs and yields :class:`Batch` after batch, in an order
that is the same on every machine. It decides nothing about where pixels go; gather.py does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from autodo.data import wording
from autodo.data.map_images import Progress
from autodo.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How images are read."""

    name: str = "train"
    """What errors call the set."""
    image_size: int | tuple[int, int] | None = None
    """Resize to this side, or to (height, width)."""
    crop: bool = False
    """Resize the smaller way and cut the centre out, so that nothing is squeezed."""
    channels: int | None = None
    """Convert to grey (1) or RGB (3)."""
    skip_corrupt: bool = False
    """Leave out what cannot be decoded, instead of refusing the set."""
    progress: Progress | None = None
    """Told (done, total) after each image."""

    def __post_init__(self) -> None:
        size = self.size
        if size is not None and (len(size) != 2 or min(size) < 1):
            raise InputError(
                f"an image size of {size}",
                "the size is a side in pixels, or height and width",
                "give a positive number, such as --image-size 32",
            )
        if self.channels not in (None, 1, 3):
            raise InputError(
                f"{self.channels} channels",
                "images are read as grey (1 channel) or RGB (3)",
                "give --channels 1 or --channels 3",
            )

    @property
    def size(self) -> tuple[int, int] | None:
        """(height, width).

        >>> Reading(image_size=32).size, Reading().size
        ((32, 32), None)
        """
        size = self.image_size
        return (size, size) if isinstance(size, int) else size


@dataclass(frozen=True)
class Skipped:
    """An image that could not be decoded.

    >>> print(Skipped("train.parquet#7", "OSError: image file is truncated"))
    train.parquet#7 (OSError: image file is truncated)
    """

    where: str
    """The file, or the Parquet file and its row."""
    reason: str
    """What the decoder said."""

    def __str__(self) -> str:
        return f"{self.where} ({self.reason})"


OnSkipped = Callable[[Sequence[Skipped]], object]
"""Told once of everything that was left out."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Some examples that follow one another."""

    images: Sequence[np.ndarray] | np.ndarray
    """n of (C, H, W), uint8 or float32."""
    labels: Sequence[Any] | np.ndarray
    """n class numbers, as the source has them."""
    ids: Sequence[str]
    """n ids, or none where the position in the set is the id."""
    skipped: Sequence[Skipped] = ()
    """What lay between them and could not be decoded."""


class Source(Protocol):
    """A set of images on a disk that has been found but not yet read."""

    @property
    def place(self) -> str:
        """Where it is, for errors."""

    @property
    def noun(self) -> str:
        """What one of its images is called in errors."""

    @property
    def files(self) -> Sequence[Path]:
        """Every file that the result depends on."""

    @property
    def total(self) -> int:
        """Number of examples, corrupt ones included."""

    @property
    def class_names(self) -> Sequence[str] | None:
        """One name per class, where it has names."""

    @property
    def identity(self) -> Any:
        """What else the result depends on, as JSON."""

    def batches(self, reading: Reading) -> Iterator[Batch]:
        """All examples in order."""


def refuse(skipped: Sequence[Skipped], source: Source, name: str) -> None:
    """Raise if there is anything that could not be decoded, naming it."""
    if skipped:
        raise InputError(
            f"{wording.count(len(skipped), source.noun)} of {name} in '{source.place}' "
            f"cannot be decoded: {wording.some(skipped)}",
            "corrupt, cut off while copying, or not an image whatever the name says",
            "copy again or remove, or leave out what cannot be read with --skip-corrupt "
            "(skip_corrupt=True)",
        )
