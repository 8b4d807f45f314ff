"""What each training point is worth to the trusted loss: W by the hypergradient at the heads.

Head k has seen neither fold k of the training points nor fold k of the trusted ones, so its
trusted gradient does not vanish as that of a head does that has fitted them. u_k = H_k^-1 v_k is
solved once per head on some of the points; the gradient of any point's W then is a closed form of
its own features (``implicit.head``), so points are taken a chunk at a time.

S stays where the posterior puts it: steps along its hypergradient lower the AUC and the average
precision of wrong-label detection (docs/results.md).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from autodo.auditing.belief import Learned
from autodo.implicit.head import head_hypergradient
from autodo.implicit.solvers import ConjugateGradient

CURVATURE_POINTS = 10_000
"""Training points from which the Hessian of a head is estimated, at the most."""


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
        solver = ConjugateGradient(steps=20, damping=damping)
        self.solved: list[Tensor] = []
        for k, (weight, bias) in enumerate(
            zip(learned.heads.weight, learned.heads.bias, strict=True)
        ):
            some = (learned.fold != k).nonzero().flatten()
            if len(some) == 0:  # a single training point, and this head is without it
                self.solved.append(torch.zeros_like(weight))
                continue
            some = some[:: max(1, len(some) // CURVATURE_POINTS)]
            part, unseen = features[some], learned.trusted_fold == k
            log_q = learned.labels(learned.stacked.belief(part, learned.fold[some]), given[some])
            found = head_hypergradient(
                part,
                weight,
                bias,
                torch.zeros(len(part)),
                log_q,
                trusted[unseen],
                trusted_labels[unseen],
                solver=solver,
                loss="kl",
                logit_adjustment=learned.shift,
            )
            found.solution.check()
            self.solved.append(found.solution.u)

    def __call__(self, features: Tensor, log_q: Tensor, fold: Tensor) -> Tensor:
        """(n,) of features (n, D) with labels log_q (n, C); heads that left a point out abstain."""
        total = torch.zeros(len(features))
        q, heads = F.log_softmax(log_q, -1).exp(), self.learned.heads
        for k, u in enumerate(self.solved):
            logits = F.linear(features, heads.weight[k], heads.bias[k]) + self.learned.shift
            along = ((F.log_softmax(logits, -1).exp() - q) * (features @ u.T)).sum(-1)
            # dw/dW at W = 0 of a mean over points, in the order in which implicit.head has it.
            half = torch.sigmoid(torch.zeros(len(features)))
            gradient = -along * half / (math.log(2) * len(features)) * len(features)
            total -= torch.where(fold == k, 0.0, gradient)
        return total / (len(self.solved) - (fold >= 0).float())
