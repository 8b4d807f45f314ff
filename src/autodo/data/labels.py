"""Labels as users bring them, turned into whole class numbers or refused.

A label that is silently cast (0.7 -> 0, True -> 1, a one-hot row -> an index)
is a wrong label that nobody put there; so anything but an integer is an error
that says what was found and how to make integers of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autodo.data import wording
from autodo.errors import InputError


def default_names(num_classes: int) -> tuple[str, ...]:
    """The class names of a dataset that brings none.

    >>> default_names(3)
    ('0', '1', '2')
    """
    return tuple(str(c) for c in range(num_classes))


def as_label(value: Any, *, where: str) -> int:
    """One label as an int; ``where`` names the example in the error.

    >>> as_label(np.int64(3), where="train[0]"), as_label(torch.tensor(3), where="train[0]")
    (3, 3)
    """
    if type(value) is int:
        return value
    problem = _problem(value if isinstance(value, Tensor) else _array(value), ndim=0)
    if problem is not None:
        raise InputError(f"the label of {where} is not a class number", *problem)
    return int(value)


def as_labels(values: Any, *, name: str) -> Tensor:
    """Labels of a whole set, (N,) of any integer type, as an int64 tensor (N,)."""
    if not isinstance(values, Tensor):
        values = _array(values)
    problem = _problem(values, ndim=1)
    if problem is not None:
        raise InputError(f"the labels of {name} are not class numbers", *problem)
    if isinstance(values, Tensor):
        return values.detach().to(torch.int64)
    return torch.from_numpy(values.astype(np.int64))


def check_range(
    labels: Tensor, num_classes: int, *, name: str, ids: Sequence[str] | None = None
) -> None:
    """Refuse labels (N,) outside 0 .. num_classes - 1."""
    outside = ((labels < 0) | (labels >= num_classes)).nonzero().flatten().tolist()
    if not outside:
        return
    found = wording.some(
        f"{wording.example(name, i, ids)} has label {int(labels[i])}" for i in outside[:3]
    )
    negative = int(labels.min()) < 0
    raise InputError(
        f"{wording.count(len(outside), 'label')} of {name} outside 0 .. {num_classes - 1}: {found}",
        "some labels are negative, often a mark for 'unlabelled'"
        if negative
        else f"there are {num_classes} classes, and classes are counted from 0",
        "drop those examples, or number the classes from 0"
        if negative
        else f"number the classes 0 .. {num_classes - 1}, or give the right number of classes",
    )


def count_classes(labels: Tensor, *, name: str) -> int:
    """How many classes there are by the largest of labels (N,), where nothing else says so.

    >>> count_classes(torch.tensor([0, 4, 4]), name="train")
    5
    """
    largest = int(labels.max())
    # A name each for hundreds of millions of classes would fill the memory.
    if largest > 10 * len(labels) + 100_000:
        raise InputError(
            f"the labels of {name} reach {largest:,}, of {wording.count(len(labels), 'example')}",
            "a label counts the classes from 0, and these look like ids",
            "number the classes 0, 1, 2, ..., by one list for all sets",
        )
    return max(largest + 1, 1)


def settle_names(
    labels: Tensor,
    offered: Sequence[object] | None,
    *,
    name: str,
    num_classes: int | None,
    class_names: Sequence[str] | None,
) -> tuple[str, ...]:
    """The class names of a set: those asked for, else those it offers, else numbers.

    labels: (N,). Names that a set offers are used when there is one for every class.
    """
    own = tuple(_name(c) for c in offered) if offered is not None else ()
    if class_names is not None:
        if num_classes is not None and num_classes != len(class_names):
            raise InputError(
                f"{num_classes} classes but {len(class_names)} class names for {name}",
                f"the names are {wording.some(class_names)}",
                "give one name per class",
            )
        check_same_names(tuple(class_names), own, names=("the list of class names", name))
        return tuple(class_names)
    needed = count_classes(labels, name=name) if num_classes is None else num_classes
    right = len(own) >= needed if num_classes is None else len(own) == needed
    return own if right else default_names(needed)


def check_same_names(a: tuple[str, ...], b: tuple[str, ...], *, names: tuple[str, str]) -> None:
    """Refuse two lists that call one class number by two names; plain numbers name nothing."""
    if a == default_names(len(a)) or b == default_names(len(b)):
        return
    for c, (ours, theirs) in enumerate(zip(a, b, strict=False)):
        if ours != theirs:
            raise InputError(
                f"class {c} is '{ours}' in {names[0]} but '{theirs}' in {names[1]}",
                "the two number their classes differently, so labels would change meaning",
                "number the classes of both by one list, in one order",
            )


def _array(values: Any) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError:  # rows of unequal length: several labels for one image
        return np.asarray(values, dtype=object)


def _problem(value: Tensor | np.ndarray, ndim: int) -> tuple[str, str] | None:
    """Why ``value`` is no integer array of ``ndim`` axes: (cause, cure), or None if it is one."""
    shape = tuple(value.shape)
    if len(shape) > ndim:
        return (
            f"found shape {shape} where {'one number' if ndim == 0 else 'shape (N,)'} belongs, "
            "perhaps one-hot or soft labels",
            "take the class number of each, for instance labels.argmax(-1)",
        )
    if len(shape) < ndim:
        return f"found the single value {value}", "give one label per image, shape (N,)"

    kind = _kind(value)
    if kind == "integer":
        return None
    first = f"{value.reshape(-1)[:1].tolist()}"[1:-1]  # the bare number, whatever holds it
    return f"found {kind}s such as {first[:40]}" if ndim else f"found the {kind} {first[:40]}", {
        "bool": "cast with int(...) if 0 and 1 are meant",
        "float": "give integers; whole numbers can be cast with .long() or .astype('int64')",
        "string": "number the classes 0, 1, ... and give the names as class_names",
        "object": "give one integer per image",
    }[kind]


def _kind(value: Tensor | np.ndarray) -> str:
    if isinstance(value, Tensor):
        if value.dtype == torch.bool:
            return "bool"
        return "float" if value.is_floating_point() or value.is_complex() else "integer"
    kinds = {"i": "integer", "u": "integer", "b": "bool", "f": "float", "c": "float"}
    kinds |= {"U": "string", "S": "string"}
    kind = kinds.get(value.dtype.kind, "object")
    if kind == "object" and value.size and isinstance(value.flat[0], str):
        return "string"
    return kind


def _name(offered: object) -> str:
    """A class name; some datasets (ImageNet) offer a tuple of synonyms."""
    return ", ".join(map(str, offered)) if isinstance(offered, tuple | list) else str(offered)
