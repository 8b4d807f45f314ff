"""The images of a set where they lie: each opened when it is looked at, by its place in the set.

Files and Parquet rows are decoded as they are, not at the size the network saw. Every place has an
id and a label, by which ``places`` recognises the examples of a run.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageOps

from autodo.data.examples import Examples
from autodo.data.folder import ImageFolder
from autodo.data.named_labels import number
from autodo.data.pixels import convert_mode
from autodo.data.sources.parquet import ParquetFiles
from autodo.errors import InputError
from autodo.export.origin import Origin
from autodo.report.pictures import as_picture

_GROUP_BYTES = 64_000_000
"""Largest group of Parquet rows that is read to show one of them."""
_GROUPS = 4


class Images(Protocol):
    """A set of M images that can be opened one by one."""

    @property
    def ids(self) -> Sequence[str]:
        """M ids."""

    @property
    def labels(self) -> np.ndarray:
        """(M,) class numbers."""

    def open(self, place: int, side: int) -> Image.Image:
        """The image at ``place``; a file that can be decoded smaller may come smaller, but not
        below ``side`` pixels. Raises what Pillow raises."""


def open_images(origin: Origin) -> Images:
    """The set that lies at ``origin``."""
    source = origin.open()
    if isinstance(source, ImageFolder):
        return Files(source)
    if isinstance(source, ParquetFiles):
        rows = Rows(source)
        if rows.group_bytes <= _GROUP_BYTES:
            return rows
    return Arrays(origin.load())


def places(images: Images, ids: Sequence[str] | None, labels: np.ndarray) -> np.ndarray:
    """(N,): where the examples of a run with these ids and labels (N,) lie in ``images``.

    Files are known by their ids. Where the id of an example is only its number, or no ids were
    kept, number and labels of the set must be those of the run.
    """
    if ids is not None and not _numbered(ids):
        known = {name: place for place, name in enumerate(images.ids)}
        found = np.array([known.get(name, -1) for name in ids], np.int64)
        if (found < 0).all():
            raise InputError(
                "the training set is not the one of the run",
                f"none of its images is called as in the run, such as '{ids[0]}'",
                "name the set the run was made of with --source",
            )
        return found
    if len(images.ids) != len(labels) or not np.array_equal(images.labels, labels):
        raise InputError(
            "the set is not the one of the run",
            f"it has {len(images.ids):,} examples, the run's had {len(labels):,}"
            if len(images.ids) != len(labels)
            else "its labels are others",
            "name the set the run was made of",
        )
    return np.arange(len(labels))


def _numbered(ids: Sequence[str]) -> bool:
    return all(name == str(k) for k, name in enumerate(ids))


class Files:
    """The files of a folder of images by class."""

    def __init__(self, folder: ImageFolder) -> None:
        self._files: list[Path] = folder.files
        self.ids = [file.relative_to(folder.root).as_posix() for file in folder.files]
        self.labels = np.array(folder.labels, np.int64)

    def open(self, place: int, side: int) -> Image.Image:
        return decoded(self._files[place], side)


class Rows:
    """The rows of Parquet files; the groups of rows that were read last are kept."""

    def __init__(self, source: ParquetFiles) -> None:
        self._source = source
        self._groups: list[tuple[Path, int]] = []
        starts, self.group_bytes, total = [], 0, 0
        labels: list[np.ndarray] = []
        self.ids: list[str] = []
        for file in source.files:
            with pq.ParquetFile(file) as table:
                about = table.metadata
                self.ids += [f"{file.name}#{row}" for row in range(about.num_rows)]
                labels.append(np.asarray(table.read([source.label])[source.label]))
                for group in range(about.num_row_groups):
                    self._groups.append((file, group))
                    starts.append(total)
                    total += about.row_group(group).num_rows
                    size = about.row_group(group).total_byte_size
                    self.group_bytes = max(self.group_bytes, size)
        self._starts = np.array(starts, np.int64)
        self.labels = np.concatenate(labels)
        if source.is_named:
            (self.labels,), _ = number({source.place: self.labels}, source.class_names)
        self._read: OrderedDict[int, pa.ChunkedArray] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, place: int, side: int) -> Image.Image:
        group = int(np.searchsorted(self._starts, place, side="right")) - 1
        value = self._group(group)[place - int(self._starts[group])].as_py()
        if isinstance(value, dict):  # bytes or, where there are none, the file that path names
            value, path = value["bytes"], value.get("path")
            if value is None and path is not None:
                return decoded(self._groups[group][0].parent / path, side)
        if value is None:
            raise ValueError("the row has no image")
        return decoded(io.BytesIO(value), side)

    def _group(self, group: int) -> pa.ChunkedArray:
        with self._lock:
            rows = self._read.pop(group, None)
            if rows is None:
                file, number = self._groups[group]
                with pq.ParquetFile(file) as table:
                    rows = table.read_row_group(number, columns=[self._source.image]).column(0)
            self._read[group] = rows
            if len(self._read) > _GROUPS:
                self._read.popitem(last=False)
            return rows


class Arrays:
    """A set that has no files of its own, decoded and mapped from the cache."""

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        self.ids = examples.ids
        self.labels = examples.labels.numpy()

    def open(self, place: int, side: int) -> Image.Image:
        return as_picture(self._examples.images[place])


def decoded(file: Path | io.BytesIO, side: int) -> Image.Image:
    """An image file upright, in grey or RGB."""
    with Image.open(file) as image:
        # A JPEG of 40 megapixels is decoded at an eighth for a thumbnail, many times faster.
        image.draft(None, (2 * side, 2 * side))
        return convert_mode(ImageOps.exif_transpose(image))
