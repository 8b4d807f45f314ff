"""Embeddings with labels from Parquet or .npz, and the trusted ones among or beside them."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from autodo.auditing import parquet
from autodo.auditing.columns import EMBEDDING_NAMES, ID_NAMES, TRUSTED, Columns, Names
from autodo.data.columns import LABEL_NAMES, choose
from autodo.data.labels import check_same_names
from autodo.errors import InputError


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
    # They lie in reverse, see parquet.read.
    return train.rows(slice(audited)), train.rows(slice(None, audited - 1, -1))


def _read(place: Path, names: Names) -> Columns:
    if not place.exists():
        raise InputError(
            f"'{place}' does not exist",
            f"seen from the working folder '{Path.cwd()}'",
            "check the path",
        )
    if place.is_dir() or place.suffix == ".parquet":
        return parquet.read(place, names)
    if place.suffix == ".npz":
        return _npz(place, names)
    raise InputError(
        f"'{place}' is no file of embeddings",
        "embeddings are read from .parquet and .npz",
        "write them with numpy.savez(path, embeddings=..., labels=...)",
    )


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
    if prefix and not arrays:
        raise InputError(
            f"'{file}' has no arrays {prefix}embeddings and {prefix}labels, and no trusted file "
            "is given",
            "some points must be known to be right",
            "name a file of trusted points with --trusted, or write these arrays too",
        )
    types = {key: f"{a.dtype} {a.shape}" for key, a in arrays.items()}

    def key(what: str, given: str | None, customary: Sequence[str], dimensions: int) -> str:
        called = [prefix + name for name in customary]
        fitting = [
            name
            for name, a in arrays.items()
            if a.ndim == dimensions and a.dtype.kind in ("iufU" if name in called else "iuf")
        ]
        if not fitting:  # what is called so is taken, and refused later for what is wrong with it
            given = given or next((name for name in called if name in arrays), None)
        return choose(
            what,
            types,
            fitting,
            given=given,
            customary=called,
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
    if called is not None and arrays[called].ndim != 1:
        raise InputError(
            f"the array {called} of '{file}' has the shape {arrays[called].shape}",
            "there is one name per class, shape (C,)",
            f"write it as a list of names, or leave {called} out",
        )
    return Columns(
        embeddings=embeddings,
        labels=labels,
        ids=None if ids is None else [str(i) for i in arrays[ids]],
        class_names=None if called is None else tuple(str(n) for n in arrays[called]),
    )
