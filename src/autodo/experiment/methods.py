"""What a user could do with a messy and a trusted set: the alternatives, and AutoDO.

All methods share the network, its initial weights, the number of steps, the schedule and the
initial augmentation; they differ in which points they train on and in what is learned of them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import nn

from autodo.config import Config
from autodo.data import Examples
from autodo.data.pixels import to_unit
from autodo.experiment.task import Task, rare_half
from autodo.fitting import fit
from autodo.models.head import find_head
from autodo.report.summaries import confusion
from autodo.result import Result
from autodo.train.hyper_optimizer import evaluating
from autodo.train.loop import EVALUATION_BATCH, Trainer
from autodo.train.progress import reporting

BuildModel = Callable[[], nn.Module]


@dataclass(frozen=True, kw_only=True)
class Score:
    """How one method did on one task; fractions, not percent."""

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


def plain(task: Task, config: Config) -> tuple[Examples, Config]:
    return task.train, config


def trusted_alone(task: Task, config: Config) -> tuple[Examples, Config]:
    """More passes over the few points, so that it takes as many steps as the others."""
    trusted, points = len(task.trusted), len(task.train) + len(task.trusted)
    steps = points // min(config.batch_size, points)
    factor = steps / (trusted // min(config.batch_size, trusted))
    return task.trusted, dataclasses.replace(
        config,
        epochs=round(config.epochs * factor),
        warmup_epochs=round(config.warmup_epochs * factor),
    )


def train_and_trusted(task: Task, config: Config) -> tuple[Examples, Config]:
    return task.train, dataclasses.replace(config, trusted_joins_training=True)


def logit_adjusted(task: Task, config: Config) -> tuple[Examples, Config]:
    joined = dataclasses.replace(config, trusted_joins_training=True, prior_adjustment=1.0)
    return task.train, joined


BASELINES: dict[str, Callable[[Task, Config], tuple[Examples, Config]]] = {
    "plain": plain,
    "trusted alone": trusted_alone,
    "train + trusted": train_and_trusted,
    "train + trusted, logit adjustment": logit_adjusted,
}


def without_learning(config: Config) -> Config:
    """The same training with nothing learned of the dataset."""
    return dataclasses.replace(
        config,
        learn_augment=False,
        learn_weights=False,
        learn_labels=False,
        trusted_first=0.0,
        trusted_joins_training=False,
        prior_adjustment=0.0,
    )


def run_baseline(
    name: str, task: Task, config: Config, build: BuildModel, *, progress: bool = False
) -> Score:
    """Train one alternative and measure it on the test set."""
    start = time.perf_counter()
    data, config = BASELINES[name](task, without_learning(config))
    model = build()
    head = find_head(model, to_unit(task.test.images[:2]))
    trainer = Trainer(model, head, data, task.trusted, config)
    with reporting(progress, total=trainer.total_steps, title=name) as reporter:
        trainer.on_step = reporter.step
        for metrics in trainer.epochs():
            reporter.epoch(metrics, config.epochs)
    return _score(model, task, time.perf_counter() - start)


def run_autodo(
    task: Task,
    config: Config,
    build: BuildModel,
    *,
    out: Path | None = None,
    progress: bool = False,
) -> tuple[Score, Result]:
    """AutoDO on the task, scored on the test set and on the labels it suggests."""
    start = time.perf_counter()
    result = fit(
        build(), task.train, task.trusted, test=task.test,
        config=config, out=out, overwrite=True, progress=progress, title="AutoDO",
    )  # fmt: skip
    score = _score(result.model, task, time.perf_counter() - start)
    return dataclasses.replace(score, **label_scores(task, result)), result


def label_scores(task: Task, result: Result) -> dict[str, Any]:
    """How well the points table finds and corrects the wrong labels."""
    wrong = task.wrong.numpy()
    if not wrong.any() or wrong.all():
        return {}
    suspicion = -np.asarray(result.points["label_score"])
    right = np.asarray(result.points["suggested_label"]) == task.true_labels.numpy()
    return {
        "auc": float(roc_auc_score(wrong, suspicion)),
        "average_precision": float(average_precision_score(wrong, suspicion)),
        "corrected": float(right.mean()),
        "broken": float((~right[~wrong]).mean()),
    }


@torch.no_grad()
def _score(model: nn.Module, task: Task, seconds: float) -> Score:
    device = next(model.parameters()).device
    with evaluating(model):
        predicted = torch.cat(
            [
                model(to_unit(part.to(device))).argmax(-1).cpu()
                for part in task.test.images.split(EVALUATION_BATCH)
            ]
        )
    miss = predicted != task.test.labels
    rare = torch.isin(task.test.labels, rare_half(task.test.num_classes))
    counts = confusion(task.test.labels.numpy(), predicted.numpy(), task.test.num_classes)
    return Score(
        test_error=float(miss.float().mean()),
        rare_error=float(miss[rare].float().mean()),
        seconds=seconds,
        confusion=tuple(map(tuple, counts.tolist())),
    )
