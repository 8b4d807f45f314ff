"""Where a training set was read from, kept with the run so that it can be written out corrected."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autodo.data.examples import Examples
from autodo.data.reading import Source
from autodo.data.sources import NAMED, load
from autodo.data.sources.layouts import Wanted, open_path
from autodo.data.sources.named import open_named


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What ``autodo.data.sources.load`` was called with.

    >>> Origin.of("svhn", "train", data_dir=None).place
    'svhn'
    """

    place: str
    """An absolute path, or the name of a known set."""
    split: str | None = None
    data_dir: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """Others, such as image_size, channels and skip_corrupt."""

    @classmethod
    def of(
        cls,
        source: str | os.PathLike[str],
        split: str | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Origin:
        place = os.fspath(source)
        return cls(
            place=place if place in NAMED else str(Path(place).resolve()),
            split=split,
            data_dir=None if data_dir is None else str(Path(data_dir).resolve()),
            options={name: value for name, value in options.items() if value},
        )

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Origin:
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return self.place if self.split is None else f"{self.place}:{self.split}"

    def open(self) -> Source:
        """The set as it lies there, not yet read."""
        wanted = Wanted(
            name="train",
            class_names=None,
            image_key=self.options.get("image_key"),
            label_key=self.options.get("label_key"),
        )
        if self.place in NAMED:
            folder = None if self.data_dir is None else Path(self.data_dir)
            return open_named(self.place, self.split, folder, wanted)
        return open_path(Path(self.place), self.split, wanted)

    def load(self) -> Examples:
        """The set as the run saw it."""
        return load(self.place, self.split, data_dir=self.data_dir, **self.options)
