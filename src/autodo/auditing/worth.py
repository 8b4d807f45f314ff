"""What each training point is worth to the trusted loss: W by the hypergradient at the heads.

Head k has seen neither fold k of the training points nor fold k of the trusted ones, so its
trusted gradient does not vanish as that of a head does that has fitted them. u_k = H_k^-1 v_k is
solved once per head on some of the points; the gradient of any point's W then is a closed form of
its own features (``implicit.head``), so points are taken a chunk at a time.

S stays where the posterior puts it: steps along its hypergradient lower the AUC and the average
precision of wrong-label detection (docs/results.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from autodo.auditing.belief import Learned
from autodo.implicit.head import HeadHypergradient, head_hypergradient
from autodo.implicit.solvers import ConjugateGradient, MatVec, Solution, Solver

CURVATURE_POINTS = 10_000
"""Training points from which the Hessian of a head is estimated, at the most."""


@dataclass(frozen=True, eq=False)
class Solved:
    """A solver that knows the answer."""

    u: Tensor

    divergence_cause = "the solution that was given is not finite"
    divergence_cure = "look at the solver that found it"

    def solve(self, matvec: MatVec, v: Tensor) -> Solution:
        zero = v.new_zeros(())
        return Solution(u=self.u, residual=zero, diverged=~self.u.isfinite().all(), solver=self)


class Worth:
    """-dL_v/dW of points, by heads that have learned with them.

    Args:
        features, given: (n, D) and (n,), the points on which ``learned`` rests.
        trusted, trusted_labels: (m, D) and (m,).
        damping: of the Hessian, whose eigenvalues on standardised features are about 0.1.
    """

    def __init__(
        self,
        learned: Learned,
        features: Tensor,
        given: Tensor,
        trusted: Tensor,
        trusted_labels: Tensor,
        *,
        damping: float = 0.1,
    ) -> None:
        self.learned = learned
        self.trusted = [
            (trusted[learned.trusted_fold == k], trusted_labels[learned.trusted_fold == k])
            for k in range(len(learned.heads.bias))
        ]
        solver = ConjugateGradient(steps=20, damping=damping)
        self.solved: list[Solved] = []
        for k in range(len(self.trusted)):
            some = (learned.fold != k).nonzero().flatten()
            if len(some) == 0:  # a single training point, and this head is without it
                self.solved.append(Solved(torch.zeros_like(learned.heads.weight[k])))
                continue
            some = some[:: max(1, len(some) // CURVATURE_POINTS)]
            part = features[some]
            belief = learned.stacked.belief(part, learned.fold[some])
            found = self._at(k, part, learned.labels(belief, given[some]), solver)
            found.solution.check()
            self.solved.append(Solved(found.solution.u))

    def __call__(self, features: Tensor, log_q: Tensor, fold: Tensor) -> Tensor:
        """(n,) of features (n, D) with labels log_q (n, C); heads that left a point out abstain."""
        total = torch.zeros(len(features))
        for k, solved in enumerate(self.solved):
            gradient = self._at(k, features, log_q, solved).weight_logits * len(features)
            total -= torch.where(fold == k, 0.0, gradient)
        return total / (len(self.solved) - (fold >= 0).float())

    def _at(self, k: int, features: Tensor, log_q: Tensor, solver: Solver) -> HeadHypergradient:
        return head_hypergradient(
            features,
            self.learned.heads.weight[k],
            self.learned.heads.bias[k],
            torch.zeros(len(features)),
            log_q,
            *self.trusted[k],
            solver=solver,
            loss="kl",
            logit_adjustment=self.learned.shift,
        )
