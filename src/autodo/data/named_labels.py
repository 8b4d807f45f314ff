"""Labels that are names of classes, such as "cat", turned into class numbers.

Sets whose labels are names mean the same classes by them, in whatever order each would number
them; so they are numbered together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from autodo.data import wording
from autodo.errors import InputError


def number(
    labels: Mapping[str, Any], class_names: Sequence[str] | None = None
) -> tuple[list[Any], Sequence[str] | None]:
    """Class numbers for the labels of sets by name, and the class names; numbers stay as they are.

    Names are numbered as in ``class_names`` or, without, alphabetically.

    >>> number({"train": ["dog", "cat", "dog"], "trusted": ["cat", "emu"]})
    ([array([1, 0, 1]), array([0, 2])], ('cat', 'dog', 'emu'))
    """
    found = {name: _names_in(values, name) for name, values in labels.items()}
    named = {name: names for name, names in found.items() if names is not None}
    if not named:
        return list(labels.values()), class_names
    if class_names is None:
        if len(named) < len(labels):
            (name, names), other = next(iter(named.items())), (found.keys() - named.keys()).pop()
            raise InputError(
                f"the labels of {name} are names such as '{names[0]}', those of {other} are not",
                "which number is which name is not said",
                "give names in both, or class_names in the order of the numbers",
            )
        class_names = tuple(sorted({str(n) for names in named.values() for n in np.unique(names)}))
    return [
        values if names is None else _numbers(names, name, class_names)
        for (name, values), names in zip(labels.items(), found.values(), strict=True)
    ], class_names


def _names_in(values: Any, name: str) -> np.ndarray | None:
    """Labels (N,) that are names, as text; None where they are not."""
    if isinstance(values, Tensor):
        return None
    # As text numpy would take the 3 of ["cat", 3] for a name.
    kind = object if isinstance(values, list | tuple) else None
    try:
        array = np.asarray(values, dtype=kind)
    except ValueError:
        return None
    if array.ndim == 1 and array.dtype.kind == "U":
        return array
    if array.ndim != 1 or not any(isinstance(value, str) for value in array):
        return None
    odd = next((i for i, value in enumerate(array) if not isinstance(value, str)), None)
    if odd is not None:
        some = next(value for value in array if isinstance(value, str))
        raise InputError(
            f"the label of {wording.example(name, odd)} is {array[odd]}",
            f"others are names such as '{some}'",
            "name its class too, or drop that example",
        )
    return array.astype(str)


def _numbers(names: np.ndarray, name: str, class_names: Sequence[str]) -> np.ndarray:
    kinds, which = np.unique(names, return_inverse=True)
    place = {called: number for number, called in enumerate(class_names)}
    numbers = np.array([place.get(kind, -1) for kind in kinds.tolist()], dtype=np.int64)[which]
    if (numbers < 0).any():
        first = int(np.flatnonzero(numbers < 0)[0])
        raise InputError(
            f"{wording.example(name, first)} has the label '{names[first]}'",
            f"the classes are {wording.some(class_names)}",
            "correct it, or add its name to the classes",
        )
    return numbers
