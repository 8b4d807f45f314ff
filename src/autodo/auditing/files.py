"""Embeddings with labels from Parquet or .npz, and the trusted ones among or beside them.

A Parquet file has a column of lists of numbers, one of labels and, where the trusted points are in
the same file, a boolean column that marks them. An .npz has arrays. Rows are read some at a time
into one array of the type they are stored in.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from autodo.data.columns import LABEL_NAMES, choose, feature_names, schema_features
from autodo.data.labels import check_same_names
from autodo.errors import InputError

EMBEDDING_NAMES = (
    *("embedding", "embeddings", "features", "feature", "vector", "vectors"),
    *("representation", "x", "data"),
)
ID_NAMES = ("id", "path", "file", "file_name", "filename", "name")
TRUSTED = "trusted"
_ROWS = 8192


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """What a file holds."""

    embeddings: np.ndarray
    """(N, D)"""
    labels: np.ndarray
    """(N,)"""
    ids: Sequence[str] | None = None
    class_names: tuple[str, ...] | None = None
    trusted: int | None = None
    """How many points, the last ones, the file says are trusted, where it says so."""

    def rows(self, rows: slice) -> Columns:
        """Some of the rows, without a copy of their embeddings."""
        return Columns(
            embeddings=self.embeddings[rows],
            labels=self.labels[rows],
            ids=None if self.ids is None else self.ids[rows],
            class_names=self.class_names,
        )


@dataclass(frozen=True, kw_only=True)
class Names:
    """What the columns or arrays are called; None finds the customary names."""

    embedding: str | None = None
    label: str | None = None
    id: str | None = None
    trusted: str | None = None


def read_pair(file: Path, trusted: Path | None, names: Names) -> tuple[Columns, Columns]:
    """The training points of ``file`` and the trusted ones of ``trusted``, or of ``file`` itself.

    Trusted points inside ``file`` are those that its boolean column marks, or the arrays
    trusted_embeddings and trusted_labels of an .npz.
    """
    train = _read(file, names)
    if trusted is not None:
        other = _read(trusted, replace(names, trusted=None))
        if train.trusted:
            raise InputError(
                f"'{file}' marks {train.trusted:,} rows as trusted and there is '{trusted}' too",
                "the trusted points come from one place",
                "leave --trusted out, or take those rows out of the file",
            )
        if train.class_names and other.class_names:
            both = train.class_names, other.class_names
            check_same_names(*both, names=(f"'{file}'", f"'{trusted}'"))
        return train, other
    if file.suffix == ".npz":
        return train, _npz(file, Names(), prefix=f"{TRUSTED}_")
    if train.trusted is None:
        raise InputError(
            f"'{file}' has no column {names.trusted or TRUSTED}, and no trusted file is given",
            "some points must be known to be right",
            "name a file of trusted points with --trusted, or a boolean column with "
            "--trusted-column",
        )
    audited = len(train.labels) - train.trusted
    if not (audited and train.trusted):
        raise InputError(
            f"column {names.trusted or TRUSTED} of '{file}' marks "
            f"{'every' if train.trusted else 'no'} row",
            "some rows are trusted and the others are audited",
            "mark the rows whose labels are known to be right, and only those",
        )
    # They lie in reverse, see _from_parquet.
    return train.rows(slice(audited)), train.rows(slice(None, audited - 1, -1))


def _read(file: Path, names: Names) -> Columns:
    if not file.is_file():
        raise InputError(
            f"the file '{file}' does not exist",
            f"seen from the working folder '{Path.cwd()}'",
            "check the path",
        )
    if file.suffix == ".parquet":
        return _parquet(file, names)
    if file.suffix == ".npz":
        return _npz(file, names)
    raise InputError(
        f"'{file}' is no file of embeddings",
        "embeddings are read from .parquet and .npz",
        "write them with numpy.savez(path, embeddings=..., labels=...)",
    )


def _parquet(file: Path, names: Names) -> Columns:
    try:
        with pq.ParquetFile(file) as table:
            return _from_parquet(table, file, names)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"'{file}' cannot be read as Parquet",
            f"{type(error).__name__}: {str(error).splitlines()[0]}",
            "copy or write it again",
        ) from error


def _from_parquet(table: pq.ParquetFile, file: Path, names: Names) -> Columns:
    schema = table.schema_arrow
    embedding = _column(
        "embedding", schema, _is_vector, names.embedding, EMBEDDING_NAMES, file,
        "an embedding is a list of numbers",
    )  # fmt: skip
    label = _column(
        "label", schema, pa.types.is_integer, names.label, LABEL_NAMES, file,
        "labels are class numbers, hence integers",
    )  # fmt: skip
    trusted = names.trusted or (TRUSTED if TRUSTED in schema.names else None)
    if trusted is not None:
        trusted = _column(
            "trusted", schema, pa.types.is_boolean, trusted, (TRUSTED,), file,
            "it says true or false of each row",
        )  # fmt: skip
    marks = {name: name for name in schema.names if pa.types.is_string(schema.field(name).type)}
    ids = names.id or next((n for n in ID_NAMES if n in marks), None)
    if ids is not None:
        ids = _column(
            "id", schema, lambda kind: not pa.types.is_nested(kind), ids, ID_NAMES, file,
            "an id is a text or a number",
        )  # fmt: skip
    wanted = [name for name in (embedding, label, trusted, ids) if name is not None]
    count = table.metadata.num_rows
    array: np.ndarray | None = None
    rest, row = [], 0
    # Trusted rows fill the array from its end, so that the two sets are views of one array.
    places, front, back = np.empty(count, np.int64), 0, count
    for part in table.iter_batches(_ROWS, columns=wanted):
        for name in (embedding, label, trusted):
            if name is not None and part.column(name).null_count:
                first = row + part.column(name).is_null().to_pylist().index(True)
                raise InputError(
                    f"row {first} of '{file}' has no {name}",
                    f"column {name} is null there",
                    "drop the rows without one",
                )
        vectors = _vectors(part.column(embedding), row, file, None if array is None else array[0])
        if array is None:
            array = np.empty((count, vectors.shape[1]), vectors.dtype)
        marked = np.zeros(len(part), bool)
        if trusted is not None:
            marked = part.column(trusted).to_numpy(zero_copy_only=False)
        place = np.empty(len(part), np.int64)
        place[~marked] = np.arange(front, front + (~marked).sum())
        place[marked] = np.arange(back - 1, back - 1 - marked.sum(), -1)
        front, back = front + int((~marked).sum()), back - int(marked.sum())
        array[place] = vectors
        places[row : row + len(part)] = place
        row += len(part)
        rest.append(part.drop_columns([embedding]))
    if array is None:
        raise InputError(
            f"'{file}' has no rows", "there is nothing to learn from", "check how it was written"
        )
    columns, order = pa.Table.from_batches(rest), places.argsort()
    # Rows among which trusted ones are left out are still called by their number in the file.
    known: list[object] = columns[ids].to_pylist() if ids is not None else list(range(count))
    return Columns(
        embeddings=array,
        labels=columns[label].to_numpy()[order],
        ids=None if ids is None and front == count else [str(known[i]) for i in order.tolist()],
        class_names=feature_names(schema_features(schema.metadata).get(label, {})),
        trusted=None if trusted is None else count - front,
    )


def _vectors(column: pa.Array, row: int, file: Path, like: np.ndarray | None) -> np.ndarray:
    """Rows of a list column as an array (n, D)."""
    if pa.types.is_fixed_size_list(column.type):
        lengths = np.full(len(column), column.type.list_size)
    else:
        lengths = np.diff(column.offsets.to_numpy())
    width = len(like) if like is not None else int(lengths[0])
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


def _is_vector(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_(kind) for is_ in lists) and bool(
        pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
    )


def _column(
    what: str,
    schema: pa.Schema,
    fits: Callable[[pa.DataType], bool],
    given: str | None,
    customary: Sequence[str],
    file: Path,
    why: str,
) -> str:
    option = f"--{what}-column"
    types = {field.name: str(field.type) for field in schema}
    fitting = [field.name for field in schema if fits(field.type)]
    chosen = choose(
        what, types, fitting, given=given, customary=customary, where=str(file), option=option
    )
    if chosen not in fitting:
        raise InputError(
            f"column {chosen} of '{file}' is of type {types[chosen]}",
            why,
            f"name another column with {option}",
        )
    return chosen


def _npz(file: Path, names: Names, prefix: str = "") -> Columns:
    try:
        held = np.load(file, allow_pickle=False)
        arrays = {key: held[key] for key in held.files if key.startswith(TRUSTED) == bool(prefix)}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise InputError(
            f"'{file}' cannot be read as .npz",
            f"{type(error).__name__}: {error}",
            "write it again with numpy.savez(path, embeddings=..., labels=..., "
            "trusted_embeddings=..., trusted_labels=...)",
        ) from error
    types = {key: f"{a.dtype} {a.shape}" for key, a in arrays.items()}

    def key(what: str, given: str | None, customary: Sequence[str], dimensions: int) -> str:
        return choose(
            what,
            types,
            [name for name, a in arrays.items() if a.ndim == dimensions and a.dtype.kind in "iuf"],
            given=given,
            customary=[prefix + name for name in customary],
            where=str(file),
            option=f"--{what}-column"
            if not prefix
            else f"{prefix}{customary[1]}, or use --trusted",
            part="array",
        )

    embeddings = arrays[key("embedding", names.embedding, EMBEDDING_NAMES, 2)]
    labels = arrays[key("label", names.label, LABEL_NAMES, 1)]
    ids = names.id or next((n for n in ID_NAMES if n in arrays), None)
    if ids is not None:
        ids = key("id", ids, ID_NAMES, 1)
    called = next((n for n in ("class_names", "classes", "label_names") if n in arrays), None)
    return Columns(
        embeddings=embeddings,
        labels=labels,
        ids=None if ids is None else [str(i) for i in arrays[ids]],
        class_names=None if called is None else tuple(str(n) for n in arrays[called]),
    )
