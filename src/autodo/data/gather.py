"""The batches of a source gathered into one array: in memory, or in a file of the cache.

Every image is looked at before anything is said, so that all the corrupt ones and all the sizes
that occur come in one error. Only what has one shape is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Protocol

import numpy as np
import torch

from autodo.data import wording
from autodo.data.decode import bombs_are_errors
from autodo.data.examples import Examples
from autodo.data.labels import as_labels, settle_names
from autodo.data.reading import Batch, Reading, Skipped, Source, refuse
from autodo.errors import InputError

NPY_HEADER = 128
"""Bytes before the pixels in a file of :class:`NpyFile`."""


@dataclass(frozen=True, eq=False)
class Contents:
    """A source that has been read."""

    images: np.ndarray
    """(N, C, H, W), uint8 or float32, writable."""
    labels: np.ndarray
    """(N,), int64."""
    ids: Sequence[str]
    """N ids, or none where the position is the id."""
    class_names: Sequence[str] | None
    """As the source offers them."""
    skipped: Sequence[Skipped]
    """What was left out."""

    def examples(
        self, *, name: str, class_names: Sequence[str] | None = None, num_classes: int | None = None
    ) -> Examples:
        """The same as a checked set."""
        labels = torch.from_numpy(self.labels)
        return Examples(
            images=torch.from_numpy(self.images),
            labels=labels,
            class_names=settle_names(
                labels,
                self.class_names,
                name=name,
                num_classes=num_classes,
                class_names=class_names,
            ),
            ids=tuple(self.ids),
            name=name,
        )


class Sink(Protocol):
    """Where pixels go."""

    def append(self, images: np.ndarray) -> None:
        """Take n images (n, C, H, W) of the shape and type of those before."""

    def finish(self) -> np.ndarray:
        """Everything appended, (N, C, H, W)."""


class InMemory:
    """Pixels in one array, allocated once for the ``total`` images that may come.

    >>> sink = InMemory(5)
    >>> sink.append(np.ones((2, 1, 4, 4), dtype=np.uint8))
    >>> sink.finish().shape
    (2, 1, 4, 4)
    """

    def __init__(self, total: int) -> None:
        self.total, self.filled = total, 0
        self.images = np.empty(0)

    def append(self, images: np.ndarray) -> None:
        if not self.filled:
            self.images = np.empty((self.total, *images.shape[1:]), images.dtype)
        self.images[self.filled : self.filled + len(images)] = images
        self.filled += len(images)

    def finish(self) -> np.ndarray:
        return self.images[: self.filled]


class NpyFile:
    """Pixels appended to an open .npy file, whose header is written last, once N is known.

    Plain writes and no mapping: a full disk is then an error and not a crash.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.filled = file, 0
        self.shape: tuple[int, ...] = ()
        self.dtype = np.dtype(np.uint8)
        file.write(bytes(NPY_HEADER))

    def append(self, images: np.ndarray) -> None:
        self.shape, self.dtype = images.shape[1:], images.dtype
        self.file.write(np.ascontiguousarray(images).data)
        self.filled += len(images)

    def finish(self) -> np.ndarray:
        self.file.seek(0)
        self.file.write(npy_header((self.filled, *self.shape), self.dtype))
        return np.empty((0, *self.shape), self.dtype)


def npy_header(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    """The header of a .npy file (format 1.0), always as long as NPY_HEADER.

    >>> import io
    >>> file = io.BytesIO(npy_header((2, 3), np.dtype(np.uint8)) + bytes(range(6)))
    >>> np.load(file, allow_pickle=False).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    fields = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    start = b"\x93NUMPY\x01\x00" + (NPY_HEADER - 10).to_bytes(2, "little")
    return start + repr(fields).encode().ljust(NPY_HEADER - 11) + b"\n"


def gather(source: Source, reading: Reading, sink: Sink) -> Contents:
    """Read everything; raise for corrupt images (unless skipped) and for mixed shapes."""
    labels: list[np.ndarray] = []
    ids: list[str] = []
    skipped: list[Skipped] = []
    shapes: dict[tuple[int, ...], tuple[int, str]] = {}
    with bombs_are_errors():
        for batch in source.batches(reading):
            skipped += batch.skipped
            _count_shapes(batch, shapes, len(ids))
            if len(shapes) == 1 and len(batch.images):
                sink.append(np.asarray(batch.images))
            labels.append(
                as_labels(batch.labels, name=reading.name).numpy()
                if len(batch.labels)
                else np.empty(0, np.int64)
            )
            ids += batch.ids
    if not (reading.skip_corrupt and shapes):  # nothing would be left
        refuse(skipped, source, reading.name)
    _check_one_shape(shapes, reading.name)
    if not shapes:
        raise InputError(
            f"{reading.name} is empty: '{source.place}' holds no example",
            "there is nothing to learn from",
            "check the path, or the filter that made this set",
        )
    return Contents(sink.finish(), np.concatenate(labels), ids, source.class_names, tuple(skipped))


def read(source: Source, reading: Reading) -> Contents:
    """Everything in memory."""
    return gather(source, reading, InMemory(source.total))


def _count_shapes(
    batch: Batch, shapes: dict[tuple[int, ...], tuple[int, str]], before: int
) -> None:
    """Add to ``shapes``: how many images are of each shape, and which was the first."""
    if isinstance(batch.images, np.ndarray):  # an array has one shape
        groups = [(batch.images.shape[1:], len(batch.images))] if len(batch.images) else []
    else:
        groups = [(image.shape, 1) for image in batch.images]
    for k, (shape, count) in enumerate(groups):
        first = batch.ids[k] if batch.ids else str(before + k)
        seen, first = shapes.get(shape, (0, first))
        shapes[shape] = (seen + count, first)


def _check_one_shape(shapes: dict[tuple[int, ...], tuple[int, str]], name: str) -> None:
    for what, axes, option in (
        ("numbers of channels", slice(0, 1), "--channels 1 or --channels 3"),
        ("sizes (height, width)", slice(1, 3), "--image-size, such as --image-size 32"),
    ):
        kinds: dict[tuple[int, ...], tuple[int, str]] = {}
        for shape, (count, first) in shapes.items():
            seen, kept = kinds.get(shape[axes], (0, first))
            kinds[shape[axes]] = (seen + count, kept)
        if len(kinds) > 1:
            common_first = sorted(kinds.items(), key=lambda item: -item[1][0])
            found = (
                f"{'x'.join(map(str, kind))}: {wording.count(count, 'image')} such as {first}"
                for kind, (count, first) in common_first
            )
            raise InputError(
                f"the images of {name} have {len(kinds)} {what}: {wording.some(found, 4)}",
                "a batch holds images of one shape only",
                f"bring them to one with {option}",
            )
