"""How a method did: errors of its network, and how well it found and corrected wrong labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor, nn

from autodo.data.pixels import to_unit
from autodo.experiment.task import Task
from autodo.report.summaries import confusion
from autodo.train.helpers import EVALUATION_BATCH
from autodo.train.hyper_optimizer import evaluating


@dataclass(frozen=True, kw_only=True)
class Score:
    """One method on one task; fractions, not percent."""

    test_error: float
    rare_error: float
    """Test error on the rare half of the classes."""
    seconds: float
    confusion: tuple[tuple[int, ...], ...] = ()
    """(C, C) counts on the test set: row the true class, column the predicted one."""
    auc: float | None = None
    """Of the label score against the truly wrong labels."""
    average_precision: float | None = None
    corrected: float | None = None
    """Share of training labels that are right after the suggestions."""
    broken: float | None = None
    """Share of the right labels that the suggestions would make wrong."""
    symmetry: str | None = None
    """That its networks found in the images, where they were asked."""


Scores = dict[str, dict[int, Score]]
"""By method and seed."""


@torch.no_grad()
def logits_of(model: nn.Module, images: Tensor) -> Tensor:
    """(N, C) of images (N, C, H, W), in eval mode, on the host."""
    device = next(model.parameters()).device
    with evaluating(model):
        parts = [model(to_unit(part.to(device))).cpu() for part in images.split(EVALUATION_BATCH)]
    return torch.cat(parts)


def network_score(model: nn.Module, task: Task, seconds: float) -> Score:
    """Errors of a network on the test set."""
    predicted = logits_of(model, task.test.images).argmax(-1)
    miss = predicted != task.test.labels
    rare = torch.isin(task.test.labels, task.rare)
    counts = confusion(task.test.labels.numpy(), predicted.numpy(), task.train.num_classes)
    return Score(
        test_error=float(miss.float().mean()),
        rare_error=float(miss[rare].float().mean()) if rare.any() else 0.0,
        seconds=seconds,
        confusion=tuple(map(tuple, counts.tolist())),
    )


def label_scores(task: Task, score: np.ndarray, suggested: np.ndarray) -> dict[str, Any]:
    """What a label score (N,) and suggested labels (N,) are worth, where the truth is known."""
    if task.true_labels is None:
        return {}
    wrong = task.wrong.numpy()
    right = suggested == task.true_labels.numpy()
    found: dict[str, Any] = {"corrected": float(right.mean())}
    if not wrong.all():
        found["broken"] = float((~right[~wrong]).mean())
    if wrong.any() and not wrong.all():
        found["auc"] = float(roc_auc_score(wrong, -score))
        found["average_precision"] = float(average_precision_score(wrong, -score))
    return found
