"""The phases of a run: networks that each leave out a fold of the points, then the one that stays.

What a network believes of a point is worth something as long as it has not seen the point's label.
So the points are dealt out to folds, training and trusted ones alike, and the networks of the first
phases learn from the given labels of all folds but one each. For a few epochs before, while nothing
is learned of single labels that would be left in the end, they may be one that learns from all
(``common_epochs``). ``train.belief`` makes labels of what they believe. In a second round the same
networks go on, with those labels. The last phase begins with the labels of the last round and the
weights of its last network. So no network learns from the fold that it judges once it has begun to
settle, and two thirds of the default's steps teach the network that stays.
Where the first round finds hardly a wrong label there is no second, and the last phase is longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from torch import Tensor

from autodo.auditing.heads import split
from autodo.config import Config
from autodo.data.randomness import generator_for
from autodo.train.helpers import FOLDS
from autodo.train.run_folder import Metrics

WORTH_A_ROUND = 0.02
"""Share of labels drawn at random, as a round finds it, from which on another round is made; it
could correct no more labels than that."""


@dataclass(frozen=True)
class Phase:
    """Epochs that belong together: one network, one schedule."""

    start: int
    """Its first epoch in the run, from 0."""
    epochs: int
    fold: int | None
    """The fold that its network does not see; None is a phase that leaves out none."""
    given: bool = False
    """Whether its network learns from the given labels, not from those the table holds."""
    before: int = 0
    """Epochs of the same schedule that another phase has had before."""
    after: int = 0
    """Epochs of the same schedule that other phases have after it."""

    @property
    def end(self) -> int:
        """The epoch after its last."""
        return self.start + self.epochs

    @property
    def last(self) -> bool:
        """Whether its network is the one that stays."""
        return self.fold is None and not self.given


@dataclass(frozen=True)
class Plan:
    """The phases of a run, in order, and when lambda begins to be learned."""

    phases: tuple[Phase, ...]
    hyper_start: int
    """E, as a number of epochs from the start of the run."""

    @property
    def epochs(self) -> int:
        """Of the whole run."""
        return self.phases[-1].end

    def at(self, epoch: int) -> Phase:
        """The phase that an epoch belongs to."""
        return next(phase for phase in self.phases if epoch < phase.end)


def plan(config: Config, history: Sequence[Metrics] = ()) -> Plan:
    """What a run does, as far as its metrics so far tell.

    After a round that found hardly a wrong label no other follows. Their epochs go to the last
    network, so that a run takes as many steps as it would have; a network without one of k folds
    sees (k - 1) / k of the points in each of its epochs.

    >>> [(phase.start, phase.fold, phase.given) for phase in plan(Config(epochs=10)).phases]
    [(0, 0, True), (10, 1, True), (20, 0, False), (30, 1, False), (40, None, False)]
    >>> clean = [{"epoch": 10, "noise_rate": 0.002}, {"epoch": 20, "noise_rate": 0.004}]
    >>> [(phase.start, phase.epochs) for phase in plan(Config(epochs=10), clean).phases]
    [(0, 10), (10, 10), (20, 20)]
    >>> start = plan(Config(epochs=10, common_epochs=2)).phases[:3]
    >>> [(phase.start, phase.epochs, phase.fold) for phase in start]
    [(0, 2, None), (2, 8, 0), (10, 8, 1)]
    """
    folds, each = config.belief_folds, config.belief_epochs or config.epochs
    rounds = config.belief_rounds if config.epochs_before else 0
    made = _made(rounds, folds, history)
    common = min(config.common_epochs, each // 4) if rounds else 0
    found = [Phase(0, common, None, True, after=each - common)] if common else []
    start = common
    for k in range(made * folds):
        shared = common if k < folds else 0
        found.append(Phase(start, each - shared, k % folds, k < folds, before=shared))
        start = found[-1].end
    saved = (rounds - made) * (folds - 1) * each
    last = Phase(start, config.epochs + saved, None)
    return Plan((*found, last), last.end - config.hyper_epochs)


def _made(rounds: int, folds: int, history: Sequence[Metrics]) -> int:
    """How many of the rounds are made, for all that is known."""
    rates = [metrics["noise_rate"] for metrics in history if "noise_rate" in metrics]
    for k in range(1, rounds):
        found = rates[(k - 1) * folds : k * folds]
        # A belief that tells nothing of the labels finds no noise at all; that is no good sign.
        if len(found) == folds and min(found) > 0 and mean(found) < WORTH_A_ROUND:
            return k
    return rounds


def in_words(config: Config, history: Sequence[Metrics]) -> str:
    """Why a run made fewer rounds than it could have; nothing where it made them all.

    >>> clean = [{"epoch": 10, "noise_rate": 0.002}, {"epoch": 20, "noise_rate": 0.004}]
    >>> in_words(Config(epochs=10), clean)
    'hardly a label looked wrong after round 1, so the network trained for 20 epochs instead of 10'
    """
    made = plan(config, history)
    if made.phases[-1].epochs == config.epochs:
        return ""
    rounds = sum(phase.fold is not None for phase in made.phases) // config.belief_folds
    return (
        f"hardly a label looked wrong after round {rounds}, so the network trained for "
        f"{made.phases[-1].epochs} epochs instead of {config.epochs}"
    )


def deal(train_labels: Tensor, trusted_labels: Tensor, config: Config) -> Tensor:
    """(N + M,) the fold of each training and then each trusted point, on the host.

    Every class is spread evenly over the folds, by given label.
    """
    generator = generator_for(config.seed, FOLDS)
    folds = max(config.belief_folds, 1)
    return torch.cat(
        [
            split(len(labels), folds, generator, labels.cpu())
            for labels in (train_labels, trusted_labels)
        ]
    )
