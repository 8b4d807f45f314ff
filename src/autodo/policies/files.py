"""Policy files: a list of sub-policies in JSON, as Fast AutoAugment's and DADA's are kept.

    {"name": ..., "source": ...,
     "ranges": {operation: [low, high], ...},
     "subpolicies": [[[operation, probability, level], ...], ...]}

An operation's value is low + level (high - low); geometric ones take its sign at random. Units are
those of the operations: fractions for translations and Cutout, degrees for Rotate, a threshold for
Solarize, bits for Posterize, factors for Contrast, Color, Brightness and Sharpness.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from autodo.errors import InputError
from autodo.policies.names import nearest
from autodo.policies.operations import NAMES, NEUTRAL, SIGNED
from autodo.policies.subpolicies import Entry, SubPolicies

EXAMPLE = '[["Rotate", 0.7, 0.2], ["Invert", 0.1, 0.0]]'


def load(path: str | Path) -> SubPolicies:
    """The policy of a JSON file; an error names the place in it, such as subpolicies[3][1]."""
    path = Path(path)
    content = _read(path)
    if not isinstance(content, dict):
        _refuse(
            path,
            "",
            f"the file holds {_kind(content)}, not an object",
            "a policy is an object with the keys ranges and subpolicies",
            'write {"ranges": {...}, "subpolicies": [...]}',
        )
    ranges = _ranges(path, content.get("ranges", {}))
    subpolicies = content.get("subpolicies")
    if not isinstance(subpolicies, list) or not subpolicies:
        found = _kind(subpolicies) if "subpolicies" in content else "missing"
        _refuse(
            path,
            "subpolicies",
            f"it is {found}",
            "it must be a list of sub-policies, of which each image draws one",
            f"give at least one, such as {EXAMPLE}",
        )
    entries = tuple(
        _subpolicy(path, f"subpolicies[{i}]", row, ranges) for i, row in enumerate(subpolicies)
    )
    # "+" joins policies in a text; a path that holds one doubles it.
    return SubPolicies("file:" + str(path).replace("+", "++"), entries)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{path} does not exist", "no policy file is there", "give the path of a JSON file"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} cannot be read", str(error), "give the path of a JSON file in UTF-8"
        ) from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}: line {error.lineno}, column {error.colno}: this is not JSON",
            error.msg,
            "mend the file there; a comma too many or too few is the usual cause",
        ) from None


def _ranges(path: Path, ranges: Any) -> dict[str, tuple[float, float]]:
    if not isinstance(ranges, dict):
        _refuse(
            path,
            "ranges",
            f"it is {_kind(ranges)}",
            "it maps operations to their [low, high]",
            'write {"Rotate": [-30, 30], ...}',
        )
    checked = {}
    for name, pair in ranges.items():
        place = f"ranges.{name}"
        _check_operation(path, place, name)
        if not (isinstance(pair, list) and len(pair) == 2 and all(map(_is_number, pair))):
            _refuse(
                path,
                place,
                f"{json.dumps(pair)} is no range",
                "a range is two finite numbers, the values at level 0 and level 1",
                'write for example {"Rotate": [-30, 30]}',
            )
        checked[name] = (float(pair[0]), float(pair[1]))
    return checked


def _subpolicy(
    path: Path, place: str, row: Any, ranges: Mapping[str, tuple[float, float]]
) -> tuple[Entry, ...]:
    if not isinstance(row, list) or not row:
        _refuse(
            path,
            place,
            f"it is {_kind(row)}",
            "a sub-policy is a list of one or more [operation, probability, level]",
            f"write for example {EXAMPLE}",
        )
    return tuple(_entry(path, f"{place}[{k}]", item, ranges) for k, item in enumerate(row))


def _entry(path: Path, place: str, item: Any, ranges: Mapping[str, tuple[float, float]]) -> Entry:
    if not (isinstance(item, list) and len(item) == 3):
        _refuse(
            path,
            place,
            f"{json.dumps(item)} is no operation",
            "an operation is [name, probability, level]",
            'write for example ["Rotate", 0.7, 0.2]',
        )
    name, probability, level = item
    _check_operation(path, place, name)
    for what, number in (("probability", probability), ("level", level)):
        if not _is_number(number) or not 0 <= number <= 1:
            _refuse(
                path,
                place,
                f"the {what} {json.dumps(number)} of {name} is outside [0, 1]",
                f"an operation is [name, probability, level], and its {what} a share",
                "give a number from 0 to 1",
            )
    if name in NEUTRAL and name not in ranges:
        _refuse(
            path,
            place,
            f"{name} has no range",
            f"level {level} means low + level * (high - low), and ranges has no {name!r}",
            f'add "{name}": [low, high] to ranges',
        )
    low, high = ranges.get(name, (0.0, 0.0))
    return Entry(name, float(probability), low + level * (high - low), name in SIGNED)


def _check_operation(path: Path, place: str, name: Any) -> None:
    if name not in NAMES:
        _refuse(
            path,
            place,
            f"there is no operation {json.dumps(name)}",
            "only the operations of AutoAugment and RandAugment are known",
            nearest(str(name), NAMES),
        )


def _refuse(path: Path, place: str, fact: str, cause: str, cure: str) -> NoReturn:
    raise InputError(": ".join(part for part in (str(path), place, fact) if part), cause, cure)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _kind(value: Any) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    if value == []:
        return "an empty list"
    return names.get(type(value), "null" if value is None else "a number")
