"""The outcome of a run in words, for the first line of the report."""

from __future__ import annotations

from typing import Any

import numpy as np

from autodo.data import wording
from autodo.report.run import Run
from autodo.report.summaries import class_means

RAISED = 1.005
"""Mean weight from which a class counts as raised."""


def percent(share: float) -> str:
    """
    >>> percent(0.0312), percent(0.0004), percent(0.0)
    ('3.1%', '0.04%', '0.0%')
    """
    return f"{share:.2%}" if 0 < share < 0.001 else f"{share:.1%}"


def outcome(run: Run) -> str:
    """One or two sentences: errors before and after, labels that look wrong, classes raised."""
    return " ".join(part for part in (_errors(run), _labels(run), _raised(run)) if part)


def _errors(run: Run) -> str:
    last = run.metrics[-1] if run.metrics else {}
    if "test_error" in last:
        error = percent(last["test_error"])
        if not run.baselines:
            return f"The test error is {error}."
        best = run.baselines[0]
        if best.error > last["test_error"]:
            return f"The test error fell from {percent(best.error)} ({best.name}) to {error}."
        return f"The test error is {error}; {best.name} has {percent(best.error)}."
    if "trusted_error" in last:
        return (
            f"The error on the trusted images, which were learned from, is "
            f"{percent(last['trusted_error'])}; no test set was given."
        )
    return ""


def _labels(run: Run) -> str:
    total = run.points.num_rows
    if not run.config.learn_labels:
        return f"Labels were not learned; all {total:,} stand as given."
    issues = int(run.columns["is_label_issue"].sum())
    if issues == 0:
        return f"None of {total:,} labels looks wrong."
    return f"{issues:,} of {total:,} labels ({percent(issues / total)}) look wrong."


def raised_classes(run: Run) -> list[tuple[str, float]]:
    """The classes whose mean weight rose, with it, the highest first."""
    means = class_means(run.columns["weight"], run.columns["given_label"], len(run.classes))
    order = np.argsort(-np.nan_to_num(means, nan=0.0), kind="stable")
    return [(run.classes[c], float(means[c])) for c in order if means[c] > RAISED]


def _raised(run: Run) -> str:
    raised = raised_classes(run)
    if not run.config.learn_weights or not raised:
        return ""
    told = [f"'{name}' to {weight:.2f}" for name, weight in raised[:3]]
    if 3 < len(raised) == len(run.classes):
        return f"The mean weight rose in every class, most in {', '.join(told)}."
    more = f" and {len(raised) - 3} more" if len(raised) > 3 else ""
    noun = "class" if len(raised) == 1 else "classes"
    return f"The mean weight rose in the {noun} {', '.join(told)}{more}."


def tiles(run: Run) -> list[dict[str, Any]]:
    """The numbers of the first screen: value, what it is, and what it is compared with."""
    shown: list[dict[str, Any]] = []
    last = run.metrics[-1] if run.metrics else {}
    if "test_error" in last:
        note = "on images that were never learned from"
        if run.baselines:
            note = f"{percent(run.baselines[0].error)} with {run.baselines[0].name}"
        shown.append({"value": percent(last["test_error"]), "name": "test error", "note": note})
    if "trusted_error" in last:
        note = f"{wording.count(run.data['trusted'], 'image')}, learned from"
        value = percent(last["trusted_error"])
        shown.append({"value": value, "name": "trusted error", "note": note})
    total = run.points.num_rows
    if run.config.learn_labels:
        issues = int(run.columns["is_label_issue"].sum())
        note = f"of {total:,} training images, {percent(issues / total)}"
        shown.append({"value": f"{issues:,}", "name": "labels look wrong", "note": note})
    if run.config.learn_weights:
        weight = run.columns["weight"]
        low, high = np.quantile(weight, [0.05, 0.95])
        shown.append(
            {
                "value": f"{low:.2f} to {high:.2f}",
                "name": "weights",
                "note": "of nine images in ten; 1 is where all began",
            }
        )
    shown.append(
        {
            "value": duration(run.seconds),
            "name": "of training",
            "note": wording.count(len(run.metrics), "epoch"),
        }
    )
    return shown


def duration(seconds: float) -> str:
    """
    >>> duration(5.2), duration(75), duration(7384)
    ('5 s', '1 min 15 s', '2 h 3 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
