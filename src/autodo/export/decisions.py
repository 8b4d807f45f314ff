"""decisions.jsonl: what a person decided about the labels of a run, one line per decision.

The file only grows: {"index": 7, "action": "label", "label": 3}. The actions are
  accept    the suggested label is right        keep      the given label is right
  label     the class number ``label`` is right unusable  the example should not be used
  undo      what was last decided of it is taken back
``label`` may also stand beside accept and keep, and is then the label that was accepted or kept.
A later decision about an example goes over an earlier one. A last line without its end, which a
kill leaves behind, is passed over. ``review.log`` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from autodo.config import Config
from autodo.errors import InputError
from autodo.export.learned import Learned
from autodo.train.run_folder import RunFolder

FILE = "decisions.jsonl"
ACTIONS = ("accept", "keep", "label", "unusable", "undo")


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One line of decisions.jsonl."""

    index: int
    action: str
    label: int | None = None

    def line(self) -> str:
        """
        >>> Decision(index=7, action="label", label=3).line()
        '{"index": 7, "action": "label", "label": 3}'
        """
        values: dict[str, Any] = {"index": self.index, "action": self.action}
        return json.dumps(values if self.label is None else {**values, "label": self.label})


def read(run: str | Path, *, count: int, num_classes: int) -> list[Decision]:
    """The decisions about a run of ``count`` examples, in order."""
    path = Path(run) / FILE
    if not path.is_file():
        return []
    text = path.read_bytes().decode("utf-8", errors="replace")
    whole = text[: text.rfind("\n") + 1]
    return [
        _parsed(line, f"line {k} of '{path}'", count, num_classes)
        for k, line in enumerate(whole.splitlines(), 1)
        if line.strip()
    ]


def _parsed(line: str, where: str, count: int, num_classes: int) -> Decision:
    try:
        values = json.loads(line)
        decision = Decision(
            index=values["index"], action=values["action"], label=values.get("label")
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{where} is no decision",
            f"{type(error).__name__}: {error}",
            'a decision is a line such as {"index": 7, "action": "keep"}; correct or remove it',
        ) from error
    checks = {
        f"the action is {decision.action!r}": decision.action in ACTIONS,
        f"the index is {decision.index!r}": _within(decision.index, count),
        f"the label is {decision.label!r}": (decision.label is None and decision.action != "label")
        or _within(decision.label, num_classes),
    }
    for fact, fine in checks.items():
        if not fine:
            raise InputError(
                f"{where} cannot be used: {fact}",
                f"actions are {', '.join(ACTIONS)}, indices 0 .. {count - 1}, "
                f"labels 0 .. {num_classes - 1}",
                "correct or remove that line",
            )
    return decision


def _within(value: Any, count: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count


def standing(decisions: Iterable[Decision]) -> dict[int, Decision]:
    """The decision that holds for each example; an undo brings back the one before.

    >>> made = [Decision(index=1, action="keep"), Decision(index=1, action="unusable"),
    ...         Decision(index=1, action="undo")]
    >>> standing(made)[1].action
    'keep'
    """
    stacks: dict[int, list[Decision]] = {}
    for decision in decisions:
        stack = stacks.setdefault(decision.index, [])
        if decision.action != "undo":
            stack.append(decision)
        elif stack:
            stack.pop()
    return {index: stack[-1] for index, stack in stacks.items() if stack}


@dataclass(frozen=True, kw_only=True, eq=False)
class Final:
    """The labels of the training examples after review and suggestions, all (N,)."""

    labels: np.ndarray
    usable: np.ndarray
    """False where a person marked the example as unusable."""
    reviewed: np.ndarray
    """True where a person decided on the label."""


def final_labels(
    points: pa.Table, decisions: dict[int, Decision], *, suggestions: bool = True
) -> Final:
    """Decisions first, then (if wanted) suggestions where a label looks wrong, then what was given.

    >>> points = pa.table({"given_label": [0, 0, 0], "suggested_label": [1, 1, 0],
    ...                    "is_label_issue": [True, True, False]})
    >>> final_labels(points, {1: Decision(index=1, action="keep")}).labels
    array([1, 0, 0])
    """
    given = np.asarray(points["given_label"])
    suggested = np.asarray(points["suggested_label"])
    labels = np.where(np.asarray(points["is_label_issue"]) & suggestions, suggested, given)
    usable = np.ones(len(labels), bool)
    reviewed = np.zeros(len(labels), bool)
    for index, decision in decisions.items():
        if decision.action == "unusable":
            usable[index] = False
            continue
        by_action = {"accept": suggested[index], "keep": given[index]}
        labels[index] = by_action[decision.action] if decision.label is None else decision.label
        reviewed[index] = True
    return Final(labels=labels, usable=usable, reviewed=reviewed)


def load_reviewed(run: str | Path) -> Learned:
    """lambda of a run, with the decisions of its review."""
    learned = Learned.load(run)
    decisions = standing(read(run, count=len(learned), num_classes=learned.num_classes))
    if not decisions:
        return learned
    folder = RunFolder(run)
    final = final_labels(folder.read_points(), decisions)
    smoothing = Config.from_dict(folder.read_config()["config"]).smoothing
    return learned.decided(
        torch.from_numpy(final.labels),
        torch.from_numpy(final.usable),
        torch.from_numpy(final.reviewed),
        smoothing,
    )
