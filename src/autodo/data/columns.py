"""Which column of a table is the image and which the label.

For Parquet files in the layout of the Hugging Face hub, for ``datasets.Dataset`` objects and
for the arrays of an .npz: what the types say first, then the customary names.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from autodo.data import wording
from autodo.errors import InputError

IMAGE_NAMES = ("image", "images", "img", "imgs", "x", "data", "pixels", "picture", "photo")
LABEL_NAMES = ("label", "labels", "fine_label", "fine_labels", "y", "target", "targets", "class")


def choose(
    what: str,
    columns: Mapping[str, str],
    fitting: Sequence[str],
    *,
    given: str | None,
    customary: Sequence[str],
    where: str,
    option: str,
    part: str = "column",
) -> str:
    """The column that is the ``what`` (image or label).

    ``columns`` maps every column to its type in words, ``fitting`` are those of a type that
    can be one. A ``given`` name is taken as it is. ``part`` is what errors call a column.

    >>> table = {"img": "image", "fine_label": "int64", "coarse_label": "int64"}
    >>> choose("label", table, ["fine_label", "coarse_label"], given=None,
    ...        customary=LABEL_NAMES, where="train.parquet", option="label_key")
    'fine_label'
    """
    has = f"it has {wording.some((f'{c} ({kind})' for c, kind in columns.items()), 20) or 'none'}"
    if given is not None:
        if given in columns:
            return given
        near = difflib.get_close_matches(given, columns, n=3)
        raise InputError(
            f"'{where}' has no {what} {part} '{given}'",
            has,
            f"perhaps you mean {' or '.join(near)}" if near else f"give one of them as {option}",
        )
    by_name = {c.lower(): c for c in reversed(fitting)}
    for name in customary:
        if name in by_name:
            return by_name[name]
    if len(fitting) == 1:
        return fitting[0]
    problem = f"{len(fitting)} {part}s that may be the {what}" if fitting else f"no {what} {part}"
    raise InputError(f"'{where}' has {problem}", has, f"name the {part} as {option}")


def is_label(field: pa.Field, given: str | None = None) -> bool:
    """Whether a column may be the labels: numbers, or names if it is called as labels are.

    >>> [is_label(pa.field(name, pa.string())) for name in ("label", "path")]
    [True, False]
    """
    called = field.name == given or field.name.lower() in LABEL_NAMES
    return pa.types.is_integer(field.type) or (called and is_text(field.type))


def is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def feature_names(feature: Any) -> tuple[str, ...] | None:
    """The class names of a feature of a ClassLabel column, whichever way it holds them.

    >>> feature_names({"_type": "ClassLabel", "names": {"0": "cat", "1": "dog"}})
    ('cat', 'dog')
    """
    names = feature.get("names") if isinstance(feature, dict) else getattr(feature, "names", None)
    if isinstance(names, dict):
        names = [names[key] for key in sorted(names, key=int)]
    return tuple(str(name) for name in names) if isinstance(names, list | tuple) else None


def schema_features(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """The features that the ``datasets`` library writes into the metadata of a schema."""
    try:
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):  # somebody else's metadata
        return {}
    return features if isinstance(features, dict) else {}


class ColumnPairs:
    """A ``datasets.Dataset`` (or its like) as pairs (image, label).

    Items are read from the dataset at each access, so a transform that was set on it stays alive.
    """

    def __init__(self, dataset: Any, *, name: str) -> None:
        features = dataset.features
        columns = {c: getattr(f, "_type", type(f).__name__) for c, f in features.items()}
        columns |= {c: f"{f.dtype}" for c, f in features.items() if columns[c] == "Value"}
        self.dataset = dataset
        self.image = choose(
            "image",
            columns,
            [c for c, kind in columns.items() if kind in ("Image", "Array2D", "Array3D")],
            given=None,
            customary=IMAGE_NAMES,
            where=name,
            option="dataset.rename_column(..., 'image')",
        )
        self.label = choose(
            "label",
            columns,
            [c for c, kind in columns.items() if kind == "ClassLabel" or "int" in kind],
            given=None,
            customary=LABEL_NAMES,
            where=name,
            option="dataset.rename_column(..., 'label')",
        )
        self.classes = feature_names(features[self.label])

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        item = self.dataset[i]
        return item[self.image], item[self.label]


def is_columnar(dataset: Any) -> bool:
    """Whether a dataset gives dicts of columns, as those of the ``datasets`` library do."""
    return hasattr(dataset, "column_names") and isinstance(
        getattr(dataset, "features", None), Mapping
    )
