"""A task: a messy training set, a trusted and a test set, and the truth that only scores see."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from autodo.data import (
    Examples,
    load_digits,
    step_imbalance,
    stratified_split,
    uniform_noise,
)
from autodo.data.digits import TEST


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """Data of one experiment."""

    train: Examples
    trusted: Examples
    test: Examples
    true_labels: Tensor | None = None
    """(N,) of train, before noise; None where nobody knows them."""

    @property
    def wrong(self) -> Tensor:
        """(N,) where the given label of a training example is not the true one."""
        if self.true_labels is None:
            return torch.zeros(len(self.train), dtype=torch.bool)
        return self.train.labels != self.true_labels

    @property
    def rare(self) -> Tensor:
        """The rarer half of the classes in train, by true labels where they are known."""
        labels = self.train.labels if self.true_labels is None else self.true_labels
        counts = torch.bincount(labels, minlength=self.train.num_classes)
        # Among equals the later classes, which a step imbalance would have cut.
        order = counts.flip(0).argsort(stable=True)
        return self.train.num_classes - 1 - order[: -(-self.train.num_classes // 2)]


def digits_task(*, noise: float, imbalance: float = 10, trusted: int = 200, seed: int = 0) -> Task:
    """scikit-learn's 8x8 digits: split, then train cut to the imbalance and its labels flipped.

    >>> task = digits_task(noise=0.4)
    >>> len(task.train), len(task.trusted), len(task.test), int(task.wrong.sum())
    (551, 200, 597, 200)
    """
    digits = load_digits()
    classes = digits.num_classes
    rest, test = stratified_split(digits.labels, TEST, seed=seed)
    pool = digits.subset(rest)
    rest, picked = stratified_split(pool.labels, trusted, seed=seed)
    train = pool.subset(rest)
    train = train.subset(step_imbalance(train.labels, imbalance, num_classes=classes, seed=seed))
    noisy = uniform_noise(train.labels, noise, num_classes=classes, seed=seed)
    return Task(
        train=train.with_labels(noisy),
        trusted=pool.subset(picked),
        test=digits.subset(test),
        true_labels=train.labels,
    )


def rare_half(num_classes: int) -> Tensor:
    """The classes that the step imbalance makes rare: C/2 .. C-1."""
    return torch.arange(num_classes // 2, num_classes)
