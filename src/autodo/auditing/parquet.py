"""Embeddings with labels from Parquet: one file, or a folder of files that follow one another.

There is a column of lists of numbers, one of labels and, where the trusted points are among the
others, a boolean column that marks them. Rows are read some at a time into one array of the type
they are stored in, or that holds the types of all files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from autodo.auditing.columns import EMBEDDING_NAMES, ID_NAMES, TRUSTED, Columns, Names
from autodo.data import wording
from autodo.data.columns import (
    LABEL_NAMES,
    choose,
    feature_names,
    is_label,
    is_text,
    schema_features,
)
from autodo.data.sources.layouts import parquet_sets
from autodo.data.sources.parquet import refused
from autodo.errors import InputError

_ROWS = 8192
"""Read at a time."""


def read(place: Path, names: Names) -> Columns:
    """What a file holds, or the files of a folder together."""
    files, count = [place] if place.is_file() else _files(place), 0
    kinds = []
    for file in files:
        with refused(file), pq.ParquetFile(file) as table:
            schema, rows = table.schema_arrow, table.metadata.num_rows
        found = _choose(schema, file, names)
        if file != files[0] and found != names:
            more = next(c for c in (found.trusted, found.id) if c not in (names.trusted, names.id))
            raise InputError(
                f"'{file}' has a column {more}, '{files[0]}' has none",
                "the parts of one set have the same columns",
                "write the column into all of them, or into none",
            )
        names, count = found, count + rows
        kinds.append(schema.field(found.embedding).type.value_type.to_pandas_dtype())
    embedding, label, trusted = names.embedding, names.label, names.trusted
    assert embedding is not None
    assert label is not None
    array: np.ndarray | None = None
    labels: list[np.ndarray] = []
    known: list[object] = []
    # Trusted rows fill the array from its end, so that the two sets are views of one array.
    places, front, back = [], 0, count
    for part, vectors in _parts(files, embedding, [c for c in (label, trusted) if c], names.id):
        if array is None:
            array = np.empty((count, vectors.shape[1]), np.result_type(*kinds))
        marked = np.zeros(len(part), bool)
        if trusted is not None:
            marked = part.column(trusted).to_numpy(zero_copy_only=False)
        at = np.empty(len(part), np.int64)
        at[~marked] = np.arange(front, front + (~marked).sum())
        at[marked] = np.arange(back - 1, back - 1 - marked.sum(), -1)
        front, back = front + int((~marked).sum()), back - int(marked.sum())
        array[at] = vectors
        places.append(at)
        labels.append(part.column(label).to_numpy(zero_copy_only=False))
        known += [] if names.id is None else part.column(names.id).to_pylist()
    if array is None:
        raise InputError(
            f"'{place}' has no rows", "there is nothing to learn from", "check how it was written"
        )
    order = np.concatenate(places).argsort()
    # Rows among which trusted ones are left out are still called by their number.
    named = names.id is not None or front < count
    return Columns(
        embeddings=array,
        labels=np.concatenate(labels)[order],
        ids=[str(known[i] if known else i) for i in order.tolist()] if named else None,
        class_names=feature_names(schema_features(schema.metadata).get(label, {})),
        trusted=None if trusted is None else count - front,
    )


def _files(folder: Path) -> list[Path]:
    """The Parquet files of the one set in a folder."""
    sets = [files for found in parquet_sets(folder).values() for files in found.values()]
    if len(sets) == 1:
        return sets[0]
    if sets:
        raise InputError(
            f"'{folder}' holds {len(sets)} sets of Parquet files: "
            f"{wording.some(files[0].name for files in sets)}",
            "they are named differently, so they are not the parts of one set",
            "give the path of a file, or put each set into a folder of its own",
        )
    raise InputError(
        f"the folder '{folder}' holds no .parquet files",
        "an audit reads embeddings, from Parquet or .npz, and no images",
        "compute embeddings with a network and write them there; for images use autodo fit",
    )


def _choose(schema: pa.Schema, file: Path, names: Names) -> Names:
    """The names of the columns that are read; that of the ids or of the marks may be None."""
    embedding = _column(
        "embedding", schema, lambda field: _is_vector(field.type), names.embedding,
        EMBEDDING_NAMES, file, "an embedding is a list of numbers",
    )  # fmt: skip
    label = _column(
        "label", schema, lambda field: is_label(field, names.label), names.label, LABEL_NAMES,
        file, "labels are class numbers or names",
    )  # fmt: skip
    trusted = names.trusted or (TRUSTED if TRUSTED in schema.names else None)
    if trusted is not None:
        trusted = _column(
            "trusted", schema, lambda field: pa.types.is_boolean(field.type), trusted, (TRUSTED,),
            file, "it says true or false of each row",
        )  # fmt: skip
    called = {f.name for f in schema if is_text(f.type) or pa.types.is_integer(f.type)} - {label}
    ids = names.id or next((name for name in ID_NAMES if name in called), None)
    if ids is not None:
        ids = _column(
            "id", schema, lambda field: not pa.types.is_nested(field.type), ids, ID_NAMES, file,
            "an id is a text or a number",
        )  # fmt: skip
    return Names(embedding=embedding, label=label, id=ids, trusted=trusted)


def _column(
    what: str,
    schema: pa.Schema,
    fits: Callable[[pa.Field], bool],
    given: str | None,
    customary: Sequence[str],
    file: Path,
    why: str,
) -> str:
    option = f"--{what}-column"
    types = {field.name: str(field.type) for field in schema}
    fitting = [field.name for field in schema if fits(field)]
    if not set(fitting) - set(ID_NAMES):  # what is called so is meant, though of another type
        given = given or next((name for name in types if name.lower() in customary), None)
    chosen = choose(
        what, types, fitting, given=given, customary=customary, where=str(file), option=option
    )
    if chosen not in fitting:
        raise InputError(
            f"column {chosen} of '{file}' is of type {types[chosen]}",
            why,
            f"convert it, or name another column with {option}",
        )
    return chosen


def _is_vector(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_(kind) for is_ in lists) and bool(
        pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
    )


def _parts(
    files: Sequence[Path], embedding: str, needed: Sequence[str], ids: str | None
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Some rows after the other: the columns but the embedding, and the embeddings (n, D)."""
    wanted, width = [embedding, *needed, *([] if ids is None else [ids])], None
    for file in files:
        row = 0
        with refused(file), pq.ParquetFile(file) as table:
            for part in table.iter_batches(_ROWS, columns=wanted):
                for name in (embedding, *needed):
                    if part.column(name).null_count:
                        first = row + part.column(name).is_null().to_pylist().index(True)
                        raise InputError(
                            f"row {first} of '{file}' has no {name}",
                            f"column {name} is null there",
                            "drop the rows without one",
                        )
                vectors = _vectors(part.column(embedding), row, file, width)
                width = vectors.shape[1]
                yield part.drop_columns([embedding]), vectors
                row += len(part)


def _vectors(column: pa.Array, row: int, file: Path, width: int | None) -> np.ndarray:
    """Rows of a list column as an array (n, D)."""
    if pa.types.is_fixed_size_list(column.type):
        lengths = np.full(len(column), column.type.list_size)
    else:
        lengths = np.diff(column.offsets.to_numpy())
    width = int(lengths[0]) if width is None else width
    if (lengths != width).any():
        odd = int(np.flatnonzero(lengths != width)[0])
        raise InputError(
            f"the embedding of row {row + odd} of '{file}' has {lengths[odd]} numbers",
            f"those before it have {width}",
            "compute all of them with the same network and layer",
        )
    values = column.flatten()
    if values.null_count:
        values = values.fill_null(float("nan"))  # named with its row by the check of embeddings
    return values.to_numpy(zero_copy_only=False).reshape(len(column), width)
