"""Datasets of the Hugging Face hub, fetched and kept by its own library where that is installed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autodo.data.columns import ColumnPairs
from autodo.data.decode import Encoded, decode
from autodo.data.reading import Batch, Reading
from autodo.errors import InputError

_ROWS = 512


class HubTable:
    """A ``datasets.Dataset`` with an image and a label column, as a source."""

    noun = "image"

    def __init__(self, dataset: Any, *, place: str) -> None:
        columns = ColumnPairs(dataset, name=place)
        self.image, self.label, self.class_names = columns.image, columns.label, columns.classes
        self.place, self.total = place, len(dataset)
        self.files = [Path(known["filename"]) for known in dataset.cache_files]
        # Bytes, not decoded images: they are decoded here, in threads, and errors name the row.
        self._encoded = dataset.cast_column(self.image, _library().Image(decode=False))

    @property
    def identity(self) -> Any:
        return ["hub", self.place, self.image, self.label]

    def batches(self, reading: Reading) -> Iterator[Batch]:
        return decode(self._items(), self.total, reading)

    def _items(self) -> Iterator[Encoded]:
        row = 0
        for part in self._encoded.iter(_ROWS):
            for held, label in zip(part[self.image], part[self.label], strict=True):
                data = held and (held["bytes"] or (held["path"] and Path(held["path"])))
                yield Encoded(f"{self.place}#{row}", label, data)
                row += 1


def _library() -> Any:
    """The ``datasets`` library, which not everybody has."""
    return importlib.import_module("datasets")


def fetch(repository: str, config: str | None, split: str) -> HubTable:
    """One split from the hub, or from what its library fetched earlier.

    Raises InputError with what the library said, which where there is no network takes it
    some tries.
    """
    try:
        datasets = _library()
    except ImportError as error:
        raise InputError(
            f"{repository} cannot be fetched from the Hugging Face hub",
            f"the library 'datasets' cannot be imported ({error})",
            "install it with pip install datasets, or name a folder that holds the set "
            "as --data-dir",
        ) from error
    try:
        dataset = datasets.load_dataset(repository, config, split=split)
    except Exception as error:  # network, hub, disk and login: each has errors of its own
        first = (str(error).strip() or "no reason given").splitlines()[0]
        raise InputError(
            f"{repository} cannot be fetched from the Hugging Face hub",
            f"{type(error).__name__}: {first}",
            "check the network and, for a set with access conditions, your login to the hub; "
            "or name a folder that holds the set as --data-dir",
        ) from error
    return HubTable(dataset, place=f"{repository}:{split}")
