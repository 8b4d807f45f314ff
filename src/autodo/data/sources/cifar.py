"""CIFAR-10 and CIFAR-100 as their authors publish them: pickled batches, loose or in a tar.gz."""

from __future__ import annotations

import pickle
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from autodo.data import wording
from autodo.data.sources import plain_pickle
from autodo.data.sources.arrays import Arrays, ArraySource
from autodo.errors import InputError


@dataclass(frozen=True)
class Layout:
    """How one of the two lies on the disk."""

    folder: str
    archive: str
    batches: dict[str, tuple[str, ...]]
    """The files of each split, in order."""
    labels: str
    meta: str
    names: str


LAYOUTS = {
    "cifar10": Layout(
        folder="cifar-10-batches-py",
        archive="cifar-10-python.tar.gz",
        batches={
            "train": tuple(f"data_batch_{k}" for k in range(1, 6)),
            "test": ("test_batch",),
        },
        labels="labels",
        meta="batches.meta",
        names="label_names",
    ),
    "cifar100": Layout(
        folder="cifar-100-python",
        archive="cifar-100-python.tar.gz",
        batches={"train": ("train",), "test": ("test",)},
        labels="fine_labels",
        meta="meta",
        names="fine_label_names",
    ),
}


def find(place: Path, layouts: Iterable[Layout]) -> tuple[Layout, Path] | None:
    """The first of ``layouts`` at ``place``: its folder, its archive, or what holds either."""
    for layout in layouts:
        if place.is_file():
            if place.name == layout.archive:
                return layout, place
            continue
        for folder in (place, place / layout.folder):
            if (folder / layout.meta).is_file() and any(
                (folder / name).is_file() for part in layout.batches.values() for name in part
            ):
                return layout, folder
        if (place / layout.archive).is_file():
            return layout, place / layout.archive
    return None


def cifar(layout: Layout, place: Path, split: str) -> ArraySource:
    """One split as a source; ``place`` is the folder of the batches or the archive."""
    names = layout.batches[split]
    if place.is_dir():
        files = [place / name for name in (*names, layout.meta)]
        missing = [str(file) for file in files if not file.is_file()]
        if missing:
            raise InputError(
                f"'{place}' is not complete: {wording.some(missing)} not found",
                f"the {split} split consists of {wording.some((*names, layout.meta), 6)}",
                f"unpack {layout.archive} again",
            )
    else:
        files = [place]

    def load() -> Arrays:
        with _members(place, layout) as member:
            batches = [_batch(member(name), layout, f"{place}/{name}") for name in names]
            meta = _unpickled(member(layout.meta), f"{place}/{layout.meta}")
        images, labels = zip(*batches, strict=True)
        class_names = [_text(name) for name in meta.get(layout.names, ())]
        return Arrays(np.concatenate(images), np.concatenate(labels), class_names or None)

    return ArraySource(load, files=files, place=place, identity=["cifar", layout.folder, split])


@contextmanager
def _members(place: Path, layout: Layout) -> Iterator[Any]:
    """A function that opens a batch by name; nothing of an archive is written anywhere."""
    if place.is_dir():
        yield lambda name: (place / name).open("rb")
        return
    try:
        with tarfile.open(place) as archive:

            def member(name: str) -> IO[bytes]:
                opened = archive.extractfile(f"{layout.folder}/{name}")
                if opened is None:
                    raise KeyError(f"{layout.folder}/{name} is no file")
                return opened

            yield member
    except (tarfile.TarError, EOFError, KeyError, OSError) as error:
        raise InputError(
            f"the archive '{place}' cannot be read",
            f"{type(error).__name__}: {error}",
            "download it again",
        ) from error


def _batch(file: IO[bytes], layout: Layout, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 3, 32, 32) and labels (n,) of one pickled batch."""
    batch = _unpickled(file, where)
    data, labels = batch.get("data"), batch.get(layout.labels)
    if (
        not isinstance(data, np.ndarray)
        or data.dtype != np.uint8
        or data.ndim != 2
        or data.shape[1] != 3 * 32 * 32
        or not isinstance(labels, list)
    ):
        raise InputError(
            f"'{where}' is no batch of CIFAR",
            f"'data' (n, 3072) of bytes and '{layout.labels}' belong in it; "
            f"it has {wording.some(batch)}",
            f"unpack or download {layout.archive} again",
        )
    return data.reshape(-1, 3, 32, 32), np.asarray(labels)


def _unpickled(file: IO[bytes], where: str) -> dict[str, Any]:
    try:
        with file:
            value = plain_pickle.load(file)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"'{where}' is not read",
            f"{error}; only arrays, numbers, text, lists and dicts are, and nothing is run",
            "download the file again, from a place that you trust",
        ) from error
    if not isinstance(value, dict):
        raise InputError(
            f"'{where}' holds a {type(value).__name__}",
            "a batch of CIFAR is a dict",
            "download the file again",
        )
    return {_text(key): item for key, item in value.items()}


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
