"""Parquet in the layout of image datasets on the Hugging Face hub.

An image column (a struct of ``bytes`` and ``path``, or plain binary) and an integer label column,
in one file or in several that follow one another. Files are read a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from autodo.data.columns import (
    IMAGE_NAMES,
    LABEL_NAMES,
    choose,
    feature_names,
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
    ) -> None:
        self.files, self.place = list(files), str(place)
        self.total = 0
        for file in self.files:
            with refused(file), pq.ParquetFile(file) as table:
                schema, rows = table.schema_arrow, table.metadata.num_rows
            # Each file is looked at: one that differs is named now and not after an hour.
            self.image = _image_column(schema, file, image_key)
            self.label = _label_column(schema, file, label_key)
            self.total += rows
        self.class_names = feature_names(schema_features(schema.metadata).get(self.label, {}))

    @property
    def identity(self) -> Any:
        return ["parquet", self.image, self.label]

    def batches(self, reading: Reading) -> Iterator[Batch]:
        return decode(self.items(), self.total, reading)

    def items(self) -> Iterator[Encoded]:
        """The rows as they are, their images not yet decoded."""
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
                        yield Encoded(f"{file.name}#{row}", label, data)
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
        [field.name for field in schema if pa.types.is_integer(field.type)],
        given=given,
        customary=LABEL_NAMES,
        where=str(file),
        option="label_key",
    )
    if not pa.types.is_integer(kind := schema.field(chosen).type):
        raise InputError(
            f"column {chosen} of '{file}' is of type {kind}",
            "labels are class numbers, hence integers",
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
