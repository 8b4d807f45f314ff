"""Parquet in the layout of image datasets on the Hugging Face hub.

An image column (a struct of ``bytes`` and ``path``, or plain binary) and a label column, of class
numbers or of names, in one file or in several that follow one another. Files are read a few rows at
a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from autodo.data import wording
from autodo.data.columns import (
    IMAGE_NAMES,
    LABEL_NAMES,
    choose,
    feature_names,
    is_label,
    is_text,
    schema_features,
)
from autodo.data.decode import Encoded, decode
from autodo.data.reading import Batch, Reading
from autodo.errors import InputError

_ROWS = 512  # read at a time


class ParquetFiles:
    """The rows of some Parquet files, in the order of the files, as a source."""

    noun = "image"

    def __init__(
        self,
        files: Sequence[Path],
        *,
        place: Path,
        image_key: str | None = None,
        label_key: str | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        self.files, self.place = list(files), str(place)
        self.total, self.is_named = 0, False
        for file in self.files:
            with refused(file), pq.ParquetFile(file) as table:
                schema, rows = table.schema_arrow, table.metadata.num_rows
            # Each file is looked at: one that differs is named now and not after an hour.
            self.image = _image_column(schema, file, image_key)
            self.label = _label_column(schema, file, label_key)
            self.is_named |= is_text(schema.field(self.label).type)
            self.total += rows
        self.class_names = feature_names(schema_features(schema.metadata).get(self.label, {}))
        if self.is_named:
            self.class_names = tuple(self._names() if class_names is None else class_names)

    @property
    def identity(self) -> Any:
        return ["parquet", self.image, self.label, *([self.class_names] if self.is_named else [])]

    def _names(self) -> list[str]:
        """The names in the label column, in alphabetical order."""
        found: set[str] = set()
        for file in self.files:
            with refused(file):
                labels = pq.read_table(file, columns=[self.label]).column(self.label)
            found |= set(map(str, labels.unique().drop_null().to_pylist()))
        return sorted(found)

    def batches(self, reading: Reading) -> Iterator[Batch]:
        return decode(self.items(), self.total, reading)

    def items(self) -> Iterator[Encoded]:
        """The rows as they are, their images not yet decoded."""
        names = self.class_names if self.is_named and self.class_names is not None else ()
        number = {name: label for label, name in enumerate(names)}
        for file in self.files:
            row = 0
            with refused(file), pq.ParquetFile(file) as table:
                for part in table.iter_batches(_ROWS, columns=[self.image, self.label]):
                    labels = part.column(self.label)
                    if labels.null_count:
                        first = row + labels.is_null().to_pylist().index(True)
                        raise InputError(
                            f"row {first} of '{file}' has no label",
                            f"column {self.label} is null there",
                            "drop the rows without a label",
                        )
                    images = _encoded(part.column(self.image), file)
                    for label, data in zip(labels.to_pylist(), images, strict=True):
                        if self.is_named and label not in number:
                            raise InputError(
                                f"row {row} of '{file}' has the label '{label}'",
                                f"the classes are {wording.some(names)}",
                                "correct it, or drop the rows of that class",
                            )
                        yield Encoded(f"{file.name}#{row}", number.get(label, label), data)
                        row += 1


def _image_column(schema: pa.Schema, file: Path, given: str | None) -> str:
    chosen = choose(
        "image",
        _types(schema),
        [field.name for field in schema if _holds_images(field.type)],
        given=given,
        customary=IMAGE_NAMES,
        where=str(file),
        option="image_key",
    )
    if not _holds_images(kind := schema.field(chosen).type):
        raise InputError(
            f"column {chosen} of '{file}' is of type {kind}",
            "an image is binary, or a struct of bytes and path, as the hub has it",
            "name another column as image_key",
        )
    return chosen


def _label_column(schema: pa.Schema, file: Path, given: str | None) -> str:
    chosen = choose(
        "label",
        _types(schema),
        [field.name for field in schema if is_label(field, given)],
        given=given,
        customary=LABEL_NAMES,
        where=str(file),
        option="label_key",
    )
    field = schema.field(chosen)
    if not is_label(field, given):
        raise InputError(
            f"column {chosen} of '{file}' is of type {field.type}",
            "labels are class numbers or names",
            "name another column as label_key, or number the classes 0, 1, ...",
        )
    return chosen


def _types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


def _holds_images(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _encoded(column: pa.Array, file: Path) -> list[bytes | Path | None]:
    """The bytes of each row or, where there are none, the file that its path names."""
    if not pa.types.is_struct(column.type):
        return column.to_pylist()
    data: list[bytes | Path | None] = pc.struct_field(column, "bytes").to_pylist()
    if column.type.get_field_index("path") >= 0 and None in data:
        paths = pc.struct_field(column, "path").to_pylist()
        pairs = zip(data, paths, strict=True)
        return [file.parent / p if d is None and p is not None else d for d, p in pairs]
    return data


@contextmanager
def refused(file: Path) -> Iterator[None]:
    """What pyarrow says of a broken file, with the name of the file."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        with file.open("rb") as opened:
            pointer = opened.read(40).startswith(b"version https://git-lfs")
        raise InputError(
            f"'{file}' cannot be read as Parquet",
            "it is a pointer of Git LFS in place of the file"
            if pointer
            else f"{type(error).__name__}: {str(error).splitlines()[0]}",
            "fetch the file itself with git lfs pull" if pointer else "copy or download it again",
        ) from error
