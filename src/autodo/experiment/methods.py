"""What a user could do with a messy and a trusted set: the alternatives, and AutoDO.

All methods share the network, its initial weights, the epochs, the schedule and the initial
augmentation; they differ in which points they train on and in what is learned of them. AutoDO's
network has gone on from others before; one alternative takes as many steps as all of them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import nn

from autodo.config import Config
from autodo.data import Examples
from autodo.experiment.score import Score, label_scores, network_score
from autodo.experiment.task import Task
from autodo.fitting import checked_head, fit
from autodo.result import Result
from autodo.train.loop import Trainer
from autodo.train.phases import plan
from autodo.train.progress import reporting

BuildModel = Callable[[], nn.Module]


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


def class_balanced(task: Task, config: Config) -> tuple[Examples, Config]:
    joined = dataclasses.replace(config, trusted_joins_training=True, balanced_batches=True)
    return task.train, joined


def as_many_steps(task: Task, config: Config) -> tuple[Examples, Config]:
    """Logit adjustment, with the steps of AutoDO's networks before the last spent on longer
    training."""
    phases = plan(dataclasses.replace(config, learn_labels=True)).phases
    seen = 1 - 1 / max(config.belief_folds, 1)  # of the points, by a network without a fold
    epochs = sum(phase.epochs * (1 if phase.fold is None else seen) for phase in phases)
    return logit_adjusted(task, dataclasses.replace(config, epochs=round(epochs)))


BASELINES: dict[str, Callable[[Task, Config], tuple[Examples, Config]]] = {
    "plain": plain,
    "trusted alone": trusted_alone,
    "train + trusted": train_and_trusted,
    "train + trusted, logit adjustment": logit_adjusted,
}
"""The alternatives that need one training each; the demo shows these."""

BALANCED = "train + trusted, balanced classes"
LONGER = "logit adjustment, as many steps as AutoDO"
ALTERNATIVES = {**BASELINES, BALANCED: class_balanced, LONGER: as_many_steps}
CLEANLAB = "cleanlab, then logit adjustment"
PAPER = "AutoDO by the paper"
OURS = "AutoDO"
METHODS = (*ALTERNATIVES, CLEANLAB, PAPER, OURS)


def without_learning(config: Config) -> Config:
    """The same training with nothing learned of the dataset."""
    return dataclasses.replace(
        config,
        learn_augment=False,
        learn_weights=False,
        learn_labels=False,
        trusted_joins_training=False,
        prior_adjustment=0.0,
    )


def papers(config: Config) -> Config:
    """The paper's method under the budget, the network's rates and the seed of ``config``."""
    kept = (
        "epochs", "batch_size", "lr", "momentum", "weight_decay", "warmup_epochs", "augment",
        "policy", "magnitude", "seed", "device", "precision", "cuda_graphs", "num_workers",
        "measure_every",
    )  # fmt: skip
    budget = {name: getattr(config, name) for name in kept}
    budget["symmetry"] = "none" if config.symmetry == "auto" else config.symmetry
    return Config.paper(**budget, start_epoch=config.epochs // 4)


def run_baseline(
    name: str, task: Task, config: Config, build: BuildModel, *, progress: bool = False
) -> Score:
    """Train one alternative and measure it on the test set."""
    start = time.perf_counter()
    data, config = ALTERNATIVES[name](task, without_learning(config))
    model = train(build(), data, task.trusted, config, progress=progress, title=name)
    return network_score(model, task, time.perf_counter() - start)


def train(
    model: nn.Module,
    data: Examples,
    trusted: Examples,
    config: Config,
    *,
    progress: bool = False,
    title: str = "training",
) -> nn.Module:
    """A network trained as ``config`` says, with nothing kept but the network."""
    head = checked_head(model, None, data, config, data.num_classes)
    trainer = Trainer(model, head, data, trusted, config)
    with reporting(progress, total=trainer.total_steps, title=title) as reporter:
        trainer.on_step = reporter.step
        for metrics in trainer.epochs():
            reporter.epoch(metrics, trainer.plan.epochs)
    return model


def run_autodo(
    task: Task,
    config: Config,
    build: BuildModel,
    *,
    out: Path | None = None,
    progress: bool = False,
    title: str = "AutoDO",
) -> tuple[Score, Result]:
    """AutoDO on the task, scored on the test set and on the labels it suggests."""
    start = time.perf_counter()
    result = fit(
        build(), task.train, task.trusted, test=task.test,
        config=config, out=out, overwrite=True, progress=progress, title=title,
    )  # fmt: skip
    score = network_score(result.model, task, time.perf_counter() - start)
    found = label_scores(
        task,
        np.asarray(result.points["label_score"]),
        np.asarray(result.points["suggested_label"]),
    )
    symmetry = [metrics["symmetry"] for metrics in result.history if "symmetry" in metrics]
    return dataclasses.replace(score, **found, symmetry=(symmetry or [None])[-1]), result
