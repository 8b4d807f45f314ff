"""The phases of a run: networks that each leave out a fold of the points, then the one that stays.

What a network believes of a point is worth something as long as it has not seen the point's label.
So the points are dealt out to folds, training and trusted ones alike, and the networks of the first
phases learn from the given labels of all folds but one each. ``train.belief`` makes labels of
what they believe. In a second round the same networks go on, with those labels. The last phase
begins with the labels of the last round and the weights of its last network. So no network has ever
seen the fold that it judges, and two thirds of the default's steps teach the network that stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from autodo.auditing.heads import split
from autodo.config import Config
from autodo.data.randomness import derive

FOLDS = 7
"""Purpose of the random numbers that deal the points out."""


@dataclass(frozen=True)
class Phase:
    """Epochs that belong together: one network, one schedule."""

    start: int
    """Its first epoch in the run, from 0."""
    epochs: int
    fold: int | None
    """The fold that its network does not see; None is the last phase, which leaves out none."""
    given: bool = False
    """Whether its network learns from the given labels, not from those the table holds."""

    @property
    def end(self) -> int:
        """The epoch after its last."""
        return self.start + self.epochs


def phases(config: Config) -> list[Phase]:
    """All phases of a run, in order.

    >>> [(phase.start, phase.fold, phase.given) for phase in phases(Config(epochs=10))]
    [(0, 0, True), (10, 1, True), (20, 0, False), (30, 1, False), (40, None, False)]
    """
    found: list[Phase] = []
    if config.epochs_before:
        number = config.belief_rounds * config.belief_folds
        each = config.epochs_before // number
        for k in range(number):
            fold, first = k % config.belief_folds, k < config.belief_folds
            found.append(Phase(k * each, each, fold, first))
    return [*found, Phase(config.epochs_before, config.epochs, None)]


def deal(train_labels: Tensor, trusted_labels: Tensor, config: Config) -> Tensor:
    """(N + M,) the fold of each training and then each trusted point, on the host.

    Every class is spread evenly over the folds, by given label.
    """
    generator = torch.Generator().manual_seed(derive(config.seed, FOLDS))
    folds = max(config.belief_folds, 1)
    return torch.cat(
        [
            split(len(labels), folds, generator, labels.cpu())
            for labels in (train_labels, trusted_labels)
        ]
    )
