"""The corrected training set, in the layout it came in: a folder by class, or Parquet.

Every example is found again by its id, and a set that has changed since the run is refused. What a
person marked as unusable is left out; weights lie beside the images or in a column.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
from PIL import Image

from autodo.data.columns import schema_features
from autodo.data.folder import ImageFolder
from autodo.data.sources.parquet import ParquetFiles
from autodo.errors import InputError
from autodo.export.decisions import Final
from autodo.export.origin import Origin
from autodo.report.pictures import as_picture

LAYOUTS = ("folder", "parquet")
_ROWS = 512  # written at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class Corrected:
    """What is to be written of every training example, all (N,)."""

    ids: list[str]
    given: np.ndarray
    final: Final
    weights: np.ndarray
    classes: list[str]

    @property
    def used(self) -> list[int]:
        """The examples that are written."""
        return np.flatnonzero(self.final.usable).tolist()


def write_dataset(
    origin: Origin,
    corrected: Corrected,
    out: Path,
    *,
    layout: str | None = None,
    copy: bool = False,
) -> str:
    """Write the set into the new folder ``out``; returns the layout.

    layout: "folder" or "parquet"; as it came unless told. copy: copies of the files of a folder
    instead of links to them.
    """
    source = origin.open()
    came_as = "folder" if isinstance(source, ImageFolder) else "parquet"
    layout = came_as if layout is None else layout
    out.mkdir(parents=True)
    if layout == "parquet" and isinstance(source, ParquetFiles):
        _rewrite_parquet(source, corrected, out)
        return layout
    if isinstance(source, ImageFolder):
        pictures = _files(source, corrected)
    elif isinstance(source, ParquetFiles):
        pictures = _rows(source, corrected)
    else:
        pictures = _decoded(origin, corrected)
    if layout == "folder":
        _write_folder(pictures, corrected, out, copy=copy)
    else:
        _write_parquet(pictures, corrected, out)
    return layout


Picture = tuple[int, Path | bytes]
"""The index of an example, and its image file or the bytes of one."""


def _changed(corrected: Corrected, what: str) -> InputError:
    return InputError(
        f"the training set is not the one of the run: {what}",
        f"the run learned of {len(corrected.ids)} examples by their place in the set",
        "put the set back as it was, or train again",
    )


def _files(source: ImageFolder, corrected: Corrected) -> Iterator[Picture]:
    for index in corrected.used:
        name = Path(corrected.ids[index])
        file = source.root / name
        # points.parquet may come from anywhere; an id must not lead out of the folder.
        if name.is_absolute() or ".." in name.parts or not file.is_file():
            raise _changed(corrected, f"there is no file '{file}'")
        yield index, file


def _rows(source: ParquetFiles, corrected: Corrected) -> Iterator[Picture]:
    place = 0
    for item in source.items():
        if place < len(corrected.ids) and item.id == corrected.ids[place]:
            if corrected.final.usable[place] and item.data is not None:
                yield place, item.data
            place += 1
    if place != len(corrected.ids):
        raise _changed(corrected, f"'{corrected.ids[place]}' is not found in it")


def _decoded(origin: Origin, corrected: Corrected) -> Iterator[Picture]:
    """Pictures of a set that has none, such as .npz and .mat: as PNG."""
    examples = origin.load()
    if list(examples.ids) != corrected.ids or examples.labels.tolist() != corrected.given.tolist():
        raise _changed(corrected, "its examples or labels differ")
    for index in corrected.used:
        buffer = io.BytesIO()
        as_picture(examples.images[index]).save(buffer, format="PNG")
        yield index, buffer.getvalue()


def _write_folder(
    pictures: Iterator[Picture], corrected: Corrected, out: Path, *, copy: bool
) -> None:
    folders = folder_names(corrected.classes)
    for folder in folders:
        (out / folder).mkdir()
    taken: set[Path] = set()
    rows: list[tuple[str, int]] = []
    for index, picture in pictures:
        folder = folders[int(corrected.final.labels[index])]
        place = Path(folder, _name(index, picture, corrected))
        if place in taken:  # two classes may have a file of the same name
            place = place.with_name(f"{place.stem}-{index}{place.suffix}")
        taken.add(place)
        (out / place).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(picture, bytes):
            (out / place).write_bytes(picture)
        elif copy:
            shutil.copyfile(picture, out / place)
        else:
            os.symlink(picture.resolve(), out / place)
        rows.append((place.as_posix(), index))
    used = [index for _, index in rows]
    columns = {"file": pa.array([name for name, _ in rows], pa.string())}
    csv.write_csv(pa.table(columns | _columns(corrected, used)), out / "weights.csv")


def folder_names(classes: list[str]) -> list[str]:
    """A folder for every class: its name, where that is one that cannot lead elsewhere.

    >>> folder_names(["cat", "../etc", "a/b", ".hidden", ""])
    ['cat', '1-.._etc', '2-a_b', '3-.hidden', '4-']
    """
    names = []
    for label, name in enumerate(classes):
        safe = re.sub(r'[/\\\0-\x1f<>:"|?*]', "_", name)
        plain = safe == name and name not in ("", ".", "..") and not name.startswith(".")
        names.append(name if plain else f"{label}-{safe}")
    return names


def _name(index: int, picture: Path | bytes, corrected: Corrected) -> Path:
    """The file of an example below its class: the name it had, or its number."""
    if isinstance(picture, Path):
        parts = Path(corrected.ids[index]).parts
        return Path(*parts[1:]) if len(parts) > 1 else Path(*parts)
    kind = (Image.open(io.BytesIO(picture)).format or "png").lower()
    return Path(f"{index:06}.{'jpg' if kind == 'jpeg' else kind}")


def _columns(corrected: Corrected, index: list[int]) -> dict[str, pa.Array]:
    """What is written beside every example: its label and weight, and where they come from."""
    return {
        "label": pa.array(corrected.final.labels[index], pa.int64()),
        "weight": pa.array(corrected.weights[index], pa.float32()),
        "given_label": pa.array(corrected.given[index], pa.int64()),
        "reviewed": pa.array(corrected.final.reviewed[index], pa.bool_()),
    }


_ADDED = {
    "weight": {"dtype": "float32", "_type": "Value"},
    "given_label": {"dtype": "int64", "_type": "Value"},
    "reviewed": {"dtype": "bool", "_type": "Value"},
}
"""The columns that are added, as the ``datasets`` library describes them."""


def _metadata(features: dict[str, object]) -> dict[bytes, bytes]:
    return {b"huggingface": json.dumps({"info": {"features": features}}).encode()}


def _write_parquet(pictures: Iterator[Picture], corrected: Corrected, out: Path) -> None:
    label = {"names": corrected.classes, "_type": "ClassLabel"}
    features = {"image": {"_type": "Image"}, "label": label, **_ADDED}
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema(
        [("image", kind), *((name, a.type) for name, a in _columns(corrected, []).items())],
        metadata=_metadata(features),
    )
    with pq.ParquetWriter(out / "train.parquet", schema) as writer:
        part: list[Picture] = []

        def flush() -> None:
            images = [
                {
                    "bytes": data if isinstance(data, bytes) else data.read_bytes(),
                    "path": corrected.ids[index],
                }
                for index, data in part
            ]
            columns = _columns(corrected, [index for index, _ in part])
            writer.write_table(pa.table({"image": pa.array(images, kind), **columns}, schema))
            part.clear()

        for picture in pictures:
            part.append(picture)
            if len(part) == _ROWS:
                flush()
        flush()


def _rewrite_parquet(source: ParquetFiles, corrected: Corrected, out: Path) -> None:
    """The same files with the same columns, but for labels; rows that are not used are left out."""
    place = 0
    for file in source.files:
        with pq.ParquetFile(file) as table:
            schema = _extended(table.schema_arrow, source.label)
            row = 0
            with pq.ParquetWriter(out / file.name, schema) as writer:
                for part in table.iter_batches(_ROWS):
                    rows, index = [], []
                    for k in range(len(part)):
                        where = f"{file.name}#{row + k}"
                        if place < len(corrected.ids) and where == corrected.ids[place]:
                            if corrected.final.usable[place]:
                                rows.append(k)
                                index.append(place)
                            place += 1
                    row += len(part)
                    kept = part.take(pa.array(rows, pa.int64()))
                    writer.write_table(_relabelled(kept, source, corrected, index, schema))
    if place != len(corrected.ids):
        raise _changed(corrected, f"'{corrected.ids[place]}' is not found in it")


def _extended(schema: pa.Schema, label: str) -> pa.Schema:
    """With the columns that are added; an earlier export's are replaced."""
    features = schema_features(schema.metadata)
    place = schema.get_field_index(label)
    if pa.types.is_dictionary(kind := schema.field(place).type):
        # A suggestion may be a name that its part of the file does not have.
        schema = schema.set(place, schema.field(place).with_type(kind.value_type))
    for name in _ADDED:
        if name in schema.names and name != label:
            schema = schema.remove(schema.get_field_index(name))
    for name, about in _ADDED.items():
        schema = schema.append(pa.field(name, pa.type_for_alias(str(about["dtype"]))))
    metadata = dict(schema.metadata or {})
    if features:
        metadata |= _metadata({**features, **_ADDED})
    return schema.with_metadata(metadata)


def _relabelled(
    part: pa.RecordBatch,
    source: ParquetFiles,
    corrected: Corrected,
    index: list[int],
    schema: pa.Schema,
) -> pa.Table:
    columns = _columns(corrected, index)
    added = {name: columns[name] for name in _ADDED}
    label = columns["label"]
    if source.is_named:
        label = pa.array(corrected.classes).take(label)
    label = label.cast(schema.field(source.label).type)
    arrays = {name: part.column(name) for name in part.schema.names if name in schema.names}
    return pa.table({**arrays, source.label: label, **added}, schema)
