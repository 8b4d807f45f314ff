"""The customary way to clean labels: cleanlab on out-of-fold probabilities.

Networks are trained on all folds but one, with the trusted points beside them; each gives its
probabilities for the fold it has not seen. cleanlab flags labels by them; what it flags is
dropped, and a network is trained on the rest and the trusted points with logit adjustment.
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np
from sklearn.model_selection import StratifiedKFold
from torch import Tensor, nn

from autodo.config import Config
from autodo.data import Examples, wording
from autodo.errors import InputError
from autodo.experiment.methods import BuildModel, logit_adjusted, train, without_learning
from autodo.experiment.score import Score, label_scores, logits_of, network_score
from autodo.experiment.task import Task

FOLDS = 3


def check_cleanlab() -> None:
    """Raise where cleanlab cannot be imported."""
    try:
        import cleanlab  # noqa: F401
    except ImportError as error:
        raise InputError(
            "cleanlab cannot be imported",
            "it is one of the alternatives, and not installed with autodo",
            "pip install 'autodo[compare]', or leave it out with --skip cleanlab",
        ) from error


def run_cleanlab(task: Task, config: Config, build: BuildModel, *, progress: bool = False) -> Score:
    """Clean, train on what is left, and measure."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    start = time.perf_counter()
    probabilities = out_of_fold(task, config, build, progress=progress)
    labels = task.train.labels.numpy()
    # In one process: those it starts under Linux find nothing where processes are not forked.
    flagged = find_label_issues(labels, probabilities, n_jobs=1)
    score = get_label_quality_scores(labels, probabilities)
    suggested = np.where(flagged, probabilities.argmax(1), labels)

    kept = task.train.subset(np.flatnonzero(~flagged))
    data, settings = logit_adjusted(dataclasses.replace(task, train=kept), without_learning(config))
    model = train(
        build(), data, task.trusted, settings, progress=progress, title="cleanlab: on the rest"
    )
    found = label_scores(task, score, suggested)
    return dataclasses.replace(network_score(model, task, time.perf_counter() - start), **found)


def out_of_fold(
    task: Task, config: Config, build: BuildModel, *, progress: bool = False
) -> np.ndarray:
    """(N, C) probabilities of every training point by a network that has not seen it."""
    labels = task.train.labels.numpy()
    if len(labels) < FOLDS:
        raise InputError(
            f"train has {wording.count(len(labels), 'example')}",
            f"cleanlab wants probabilities out of {FOLDS} folds",
            "add examples, or leave it out with --skip cleanlab",
        )
    settings = dataclasses.replace(without_learning(config), trusted_joins_training=True)
    result = np.zeros((len(labels), task.train.num_classes), np.float32)
    folds = _folds(labels, config.seed)
    for k, (rest, held) in enumerate(folds, 1):
        model = train(
            build(), task.train.subset(rest), task.trusted, settings,
            progress=progress, title=f"cleanlab: fold {k} of {len(folds)}",
        )  # fmt: skip
        result[held] = _probabilities(model, task.train.subset(held)).numpy()
    return result


def _folds(labels: np.ndarray, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Stratified where every class has a point for each fold; a rarer one is shared out."""
    scarce = np.isin(labels, np.flatnonzero(np.bincount(labels) < FOLDS))
    classes = np.where(scarce, labels.max() + 1, labels)
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    if 0 < scarce.sum() < FOLDS:
        classes[scarce] = np.bincount(labels).argmax()
    return list(splitter.split(classes, classes))


def _probabilities(model: nn.Module, data: Examples) -> Tensor:
    return logits_of(model, data.images).float().softmax(-1)
