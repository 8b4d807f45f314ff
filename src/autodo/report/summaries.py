"""Numbers of the report: what a run says of every class, as plain Python values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autodo.hyper.augment import INITIAL_PROBABILITY, OPERATIONS
from autodo.report.run import Run
from autodo.train import phases, recognition

BINS = 40
"""Of the weight histograms."""
UNITS = {"rotation": "°", "shear_x": " rad", "shear_y": " rad", "hue": " rad"}


def confusion(labels: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """(C, C) counts: row the label, column what was predicted.

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    flat = labels.astype(np.int64) * num_classes + predicted
    return np.bincount(flat, minlength=num_classes**2).reshape(num_classes, num_classes)


def class_means(values: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """(C,) mean of ``values`` (N,) in every class; NaN where it has no example."""
    counts = np.bincount(labels, minlength=num_classes)
    sums = np.bincount(labels, values, minlength=num_classes)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def class_table(run: Run) -> list[dict[str, Any]]:
    """A row per class: how many, how often wrong, how much it counts, how many labels look wrong.

    None where there is nothing to say.
    """
    classes, columns = run.classes, run.columns
    given, suggested = columns["given_label"], columns["suggested_label"]
    count = len(classes)
    weight = class_means(columns["weight"], given, count)
    suspected = class_means(columns["is_label_issue"].astype(float), given, count)
    error = np.full(count, np.nan)
    before = np.full(count, np.nan)
    if run.judged is not None:
        seen = run.predictions[run.judged]
        error = class_means(
            (seen["label"] != seen["predicted"]).astype(float), seen["label"], count
        )
    if run.baselines and run.judged == "test":
        matrix = np.asarray(run.baselines[0].confusion)
        before = 1 - np.diag(matrix) / np.where(matrix.sum(1) > 0, matrix.sum(1), np.nan)
    numbers = np.bincount(given, minlength=count)
    after = np.bincount(suggested, minlength=count)
    return [
        {
            "name": classes[c],
            "count": int(numbers[c]),
            "suggested": int(after[c]),
            "before": _known(before[c]),
            "error": _known(error[c]),
            "weight": _known(weight[c]),
            "suspected": _known(suspected[c]),
        }
        for c in range(count)
    ]


def _finite(value: float | None) -> float | None:
    """JSON has no infinity, and a curve no place for it."""
    return value if value is not None and math.isfinite(value) else None


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def weight_histograms(run: Run) -> dict[str, Any] | None:
    """Counts (C, BINS) of weights on a logarithmic axis; None where weights were not learned."""
    weight, given = run.columns["weight"], run.columns["given_label"]
    if not run.config.learn_weights:
        return None
    logs = np.log2(np.maximum(weight, 2.0**-8))
    # 1 is in the middle of the axis, so that raised and muted are seen as right and left.
    reach = max(float(np.abs(logs).max()), 0.1) * 1.0001
    edges = np.linspace(-reach, reach, BINS + 1)
    place = np.clip(np.digitize(logs, edges) - 1, 0, BINS - 1)
    flat = given.astype(np.int64) * BINS + place
    counts = np.bincount(flat, minlength=len(run.classes) * BINS).reshape(-1, BINS)
    return {"edges": (2.0**edges).round(4).tolist(), "counts": counts.tolist()}


def augmentation(run: Run) -> dict[str, Any] | None:
    """Mean magnitude and probability of every operation in every class, and where all began.

    A class is here the examples that are held to be of it.
    """
    names = [op for op in OPERATIONS if f"{op.name}_magnitude" in run.columns]
    if not names:
        return None
    suggested, count = run.columns["suggested_label"], len(run.classes)

    def means(what: str) -> list[list[float | None]]:
        columns = [class_means(run.columns[f"{op.name}_{what}"], suggested, count) for op in names]
        return [[_known(v) for v in row] for row in np.stack(columns, 1).round(5)]

    scale = run.config.magnitude / 10 * 0.5  # sigmoid(0)
    return {
        "operations": [op.name.replace("_", " ") for op in names],
        "units": [UNITS.get(op.name, "") for op in names],
        "magnitude": means("magnitude"),
        "probability": means("probability"),
        "initial_magnitude": [op.range * scale for op in names],
        "initial_probability": INITIAL_PROBABILITY,
        "learned": "augment" in run.config.learns,
        "shared": run.config.shared_augment,
        "symmetry": recognition.in_words(run.config.symmetry, run.metrics),
    }


def curves(run: Run) -> dict[str, Any]:
    """Every epoch's losses and errors, and the epochs at which something begins."""
    series = [
        {"name": name.replace("_", " "), "values": [_finite(m.get(name)) for m in run.metrics]}
        for name in ("train_loss", "trusted_loss", "test_loss", "trusted_error", "test_error")
        if any(m.get(name) is not None for m in run.metrics)
    ]
    made = phases.plan(run.config, run.metrics)
    learned = run.config.learns and made.hyper_start < made.epochs
    return {
        "epochs": [m["epoch"] for m in run.metrics],
        "series": series,
        "epochs_before": made.phases[-1].start,
        "rounds": phases.in_words(run.config, run.metrics),
        "lambda_start": made.hyper_start if learned else None,
    }
