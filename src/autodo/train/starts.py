"""The weights that networks of later phases begin with: initial ones, or those of a network before.

A network goes on from the one that left out the same fold, the last from the last of them, so that
none begins with what another has learned of the fold that it is going to judge.
"""

from __future__ import annotations

from torch import Tensor, nn

from autodo.train.helpers import copied
from autodo.train.phases import Phase, Plan

Weights = dict[str, Tensor]


class Starts:
    """Weights by the fold that a network leaves out; None is the last network, which leaves none.

    Args:
        model: with its initial weights.
        warm: whether networks go on from those before.
    """

    def __init__(self, model: nn.Module, plan: Plan, *, warm: bool) -> None:
        self.warm = warm
        initial = copied(model) if len(plan.phases) > 1 else {}
        self.weights: dict[int | None, Weights] = {phase.fold: initial for phase in plan.phases}

    def __getitem__(self, phase: Phase) -> Weights:
        return self.weights[phase.fold]

    def keep(self, phase: Phase, model: nn.Module) -> None:
        """Let the next network without the same fold go on from ``model``, and the last one; after
        a common start, those of all folds."""
        if phase.fold is None:
            start, last = copied(model), self.weights[None]
            self.weights = {fold: last if fold is None else start for fold in self.weights}
        elif self.warm:
            self.weights[phase.fold] = self.weights[None] = copied(model)
        else:
            self.weights[phase.fold] = self.weights[None]  # initial ones, again

    def state(self, plan: Plan, done: int) -> dict[int | None, Weights]:
        """What phases need that have not begun after ``done`` epochs; the first needs nothing."""
        to_begin = [phase.fold for phase in plan.phases if phase.start >= max(done, 1)]
        return {fold: self.weights[fold] for fold in to_begin}
