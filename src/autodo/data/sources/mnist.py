"""MNIST, Fashion-MNIST and their like as their authors publish them: IDX files, plain or gzipped.

An IDX file is a magic number (two zeros, the type of the numbers, how many axes), the length of
each axis as four bytes, the first the most significant, and the numbers.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from autodo.data.sources.arrays import Arrays, ArraySource
from autodo.errors import InputError

SPLITS = {"train": "train", "test": "t10k"}
"""What the names of a split's files begin with."""
CLASSES: Mapping[str, Sequence[str]] = {
    "mnist": tuple("0123456789"),
    "fashion_mnist": (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
}
"""The sets that are known by name; their files say nothing of classes."""
_BYTE = 8


def idx_files(folder: Path, split: str) -> list[Path]:
    """Images and labels of a split, where both are there."""
    found = []
    for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"):
        plain = folder / f"{SPLITS[split]}-{kind}"
        both = (plain, plain.with_name(f"{plain.name}.gz"))
        found += [file for file in both if file.is_file()][:1]
    return found if len(found) == 2 else []


def idx(files: Sequence[Path], dataset: str | None) -> ArraySource:
    """A split as a source, from the files of its images and of its labels."""

    def load() -> Arrays:
        images, labels = (_read(file, axes) for file, axes in zip(files, (3, 1), strict=True))
        return Arrays(images, labels, CLASSES.get(dataset or ""))

    return ArraySource(load, files=files, place=files[0], identity=["idx", dataset])


def _read(file: Path, axes: int) -> np.ndarray:
    """The bytes of a file as an array of so many axes."""
    try:
        data = file.read_bytes()
        data = gzip.decompress(data) if file.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"'{file}' cannot be read", f"{type(error).__name__}: {error}", "download it again"
        ) from error
    if data[:4] != bytes((0, 0, _BYTE, axes)):
        raise InputError(
            f"'{file}' is no IDX file of bytes with {axes} {'axis' if axes == 1 else 'axes'}",
            f"it begins with {data[:4].hex(' ') or 'nothing'}, not 00 00 08 0{axes}",
            "download it again",
        )
    start = 4 + 4 * axes
    shape = [int.from_bytes(data[k : k + 4], "big") for k in range(4, start, 4)]
    if len(data) - start != np.prod(shape, dtype=np.int64):
        raise InputError(
            f"'{file}' has {len(data) - start:,} numbers and not {' x '.join(map(str, shape))}",
            "it is cut off, or something was appended",
            "download it again",
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
