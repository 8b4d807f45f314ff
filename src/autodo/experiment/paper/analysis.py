"""What a trained network does on the test set: its errors class by class, and its features.

analysis.npz in a run folder keeps what the figures need, so that they can be drawn again
without the network and the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from autodo.data.examples import Examples
from autodo.data.pixels import to_unit
from autodo.data.split import stratified_split
from autodo.experiment.paper.results import SeedResult
from autodo.experiment.task import rare_half
from autodo.models.head import find_head
from autodo.train.devices import autocast
from autodo.train.files import write_with
from autodo.train.hyper_optimizer import evaluating, head_input
from autodo.train.run_folder import Metrics

ANALYSIS = "analysis.npz"
_BATCH = 512


@torch.no_grad()
def analyse(
    model: nn.Module, test: Examples, *, embedded: int, precision: str = "auto"
) -> dict[str, np.ndarray]:
    """What the figures need of a trained network.

    confusion (C, C): test points by true class (row) and predicted class; and, of a stratified
    sample of ``embedded`` test points, features (M, D) before the head, labels (M,) and
    predictions (M,). Computed in the precision of the run, so that it counts the same errors.
    """
    device = next(model.parameters()).device
    head = find_head(model, to_unit(test.images[:2].to(device)))
    encode = head_input(model, head)
    features, predicted = [], []
    with evaluating(model):
        for part in test.images.split(_BATCH):
            with autocast(device, precision):
                seen = encode(to_unit(part.to(device)))
            seen = seen.to(head.weight.dtype)
            features.append(seen.cpu().half())
            predicted.append(head(seen).argmax(-1).cpu())
    labels, predictions = test.labels.cpu(), torch.cat(predicted)
    classes = test.num_classes
    confusion = torch.bincount(labels * classes + predictions, minlength=classes**2)
    sample = torch.arange(len(labels))
    if embedded < len(labels):
        _, sample = stratified_split(labels, embedded, seed=0)
    return {
        "confusion": confusion.view(classes, classes).numpy(),
        "features": torch.cat(features)[sample].numpy(),
        "labels": labels[sample].numpy(),
        "predictions": predictions[sample].numpy(),
    }


def class_accuracy(confusion: np.ndarray) -> np.ndarray:
    """(C,) the share of each true class that was predicted right; NaN where it has no point.

    >>> class_accuracy(np.array([[3, 1], [0, 2]]))
    array([0.75, 1.  ])
    """
    with np.errstate(invalid="ignore"):
        return np.asarray(np.diagonal(confusion) / confusion.sum(1))


def score(
    history: Sequence[Metrics], confusion: np.ndarray, *, seed: int, note: str = ""
) -> SeedResult:
    """The result of a finished run from its epochs and its confusion matrix."""
    best = min((m for m in history if "test_error" in m), key=lambda m: m["test_error"])
    accuracy = class_accuracy(confusion)
    return SeedResult(
        seed=seed,
        epochs=len(history),
        test_error=history[-1]["test_error"],
        best_test_error=best["test_error"],
        best_epoch=best["epoch"],
        class_accuracy=tuple(float(a) for a in accuracy),
        rare_accuracy=float(np.nanmean(accuracy[rare_half(len(accuracy)).numpy()])),
        interclass_deviation=float(np.nanstd(accuracy)),
        seconds=sum(m["seconds"] for m in history),
        note=note,
    )


def save_analysis(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    def write(file: Any) -> None:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    write_with(folder / ANALYSIS, write)


def load_analysis(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / ANALYSIS, allow_pickle=False) as arrays:
        return dict(arrays)
