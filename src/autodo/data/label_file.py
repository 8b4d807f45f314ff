"""Labels from a file, one whole number per example in the order of the set.

Such as CIFAR-N's, which people gave to the images of CIFAR: an .npz with several sets of labels,
of which a key names one; an .npy; or text (.csv, .txt) with a number on each line.
"""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path

import numpy as np
from torch import Tensor

from autodo.data import wording
from autodo.data.columns import LABEL_NAMES, choose
from autodo.data.labels import as_labels
from autodo.errors import InputError


def read_labels(path: str | Path, key: str | None = None) -> Tensor:
    """The labels in a file, (N,) of int64.

    key: which array of an .npz, or which column of a .csv with a heading; needed where there
    are several and none has a customary name.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(
            f"the file of labels '{path}' does not exist",
            f"seen from the working folder '{Path.cwd()}'",
            "check the path",
        )
    if path.suffix in (".npz", ".npy"):
        values = _from_numpy(path, key)
    elif path.suffix in (".csv", ".txt"):
        values = _from_text(path, key)
    else:
        raise InputError(
            f"'{path}' is no file of labels",
            "labels are read from .npz, .npy, .csv and .txt",
            "write one number per line into a .txt",
        )
    return as_labels(values, name=f"'{path}'")


def _from_numpy(path: Path, key: str | None) -> np.ndarray:
    try:
        held = np.load(path, allow_pickle=False)
        if isinstance(held, np.ndarray):
            return held
        with held:
            arrays = {name: held[name] for name in held.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"'{path}' cannot be read",
            f"{type(error).__name__}: {error}",
            "write it again with numpy, as an array of integers",
        ) from error
    types = {name: f"{a.dtype} {a.shape}" for name, a in arrays.items()}
    return arrays[_chosen(types, key, path, "array")]


def _from_text(path: Path, key: str | None) -> np.ndarray:
    """Lines of one number, or a table whose heading names the column."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(
            f"'{path}' cannot be read as text", f"it is not UTF-8: {error}", "save it as UTF-8"
        ) from error
    rows = [row for row in csv.reader(lines) if any(cell.strip() for cell in row)]
    column, first = 0, 0
    if rows and (len(rows[0]) > 1 or not _is_whole(rows[0][0])):
        heading = [cell.strip() for cell in rows[0]]
        column = heading.index(_chosen(dict.fromkeys(heading, "column"), key, path, "column"))
        first = 1
    cells = [row[column].strip() if column < len(row) else "" for row in rows[first:]]
    wrong = [k for k, cell in enumerate(cells) if not _is_whole(cell)]
    if wrong:
        raise InputError(
            f"{len(wrong):,} of the {wording.count(len(cells), 'label')} in '{path}' "
            f"{'is no whole number' if len(wrong) == 1 else 'are no whole numbers'}, "
            f"the first '{cells[wrong[0]]}' for example {wrong[0]}",
            "a label is the number of a class, counted from 0",
            "number the classes 0, 1, ...",
        )
    return np.array([int(cell) for cell in cells], dtype=np.int64)


def _chosen(columns: dict[str, str], key: str | None, path: Path, part: str) -> str:
    return choose(
        "label",
        columns,
        [c for c in columns if c.lower() in LABEL_NAMES] or list(columns),
        given=key,
        customary=LABEL_NAMES,
        where=str(path),
        option="the key",
        part=part,
    )


def _is_whole(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True
