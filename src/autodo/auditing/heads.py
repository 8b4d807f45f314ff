"""Linear heads on frozen features, several at once: the heads of a cross-fit.

Head k minimises

    sum_i m_ik CE(q_i, softmax(W_k phi_i + b_k + shift)) + l2 / 2 |W_k|^2 + BIAS_L2 / 2 |b_k|^2

over points with soft labels q_i; m_ik = 0 keeps point i out of head k, so that what head k believes
of it is out of sample. ``shift`` is the logit adjustment: what is believed without it holds
under the trusted mix of classes. All heads share each pass over the features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from autodo.auditing.descent import descend

BIAS_L2 = 0.1
"""Keeps the bias of a class finite of which a head sees no example; nothing beside ten of them."""
NUMBERS = 2**22
"""Logits that are held at a time."""
MOST = 2**25
"""Logits of beliefs that are asked for at once."""


@dataclass(frozen=True, eq=False)
class Heads:
    """K heads of D features and C classes."""

    weight: Tensor
    """(K, C, D)"""
    bias: Tensor
    """(K, C)"""

    def belief(self, features: Tensor, fold: Tensor) -> Tensor:
        """(N, C) log-probabilities of features (N, D), each by the head ``fold`` (N,) names.

        A fold of -1, a point that no head has seen, is judged by the mean logits of all.
        """
        classes, width = self.weight.shape[1:]
        rows = max(1, MOST // self.bias.numel())
        if len(features) > rows:
            parts = zip(features.split(rows), fold.split(rows), strict=True)
            return torch.cat([self.belief(*part) for part in parts])
        logits = F.linear(features, self.weight.view(-1, width), self.bias.view(-1))
        logits = logits.view(len(features), len(self.bias), classes)
        own = logits[torch.arange(len(features), device=logits.device), fold.clamp_min(0)]
        mean = logits.mean(1) if bool((fold < 0).any()) else own
        return F.log_softmax(torch.where(fold[:, None] < 0, mean, own), -1)

    def mean(self) -> Heads:
        """One head whose logits are the mean of all."""
        return Heads(self.weight.mean(0, keepdim=True), self.bias.mean(0, keepdim=True))


def split(count: int, folds: int, generator: torch.Generator, labels: Tensor) -> Tensor:
    """(count,) the fold 0 .. folds - 1 of each point, every class spread evenly over them.

    >>> fold = split(6, 3, torch.Generator().manual_seed(0), torch.tensor([0, 0, 0, 1, 1, 1]))
    >>> sorted(fold[:3].tolist()), sorted(fold[3:].tolist())
    ([0, 1, 2], [0, 1, 2])
    """
    order = torch.randperm(count, generator=generator)
    order = order[labels[order].argsort(stable=True)]
    fold = torch.empty(count, dtype=torch.int64)
    fold[order] = torch.arange(count) % folds
    return fold


def outside(fold: Tensor, folds: int) -> Tensor:
    """m: (N, K) with 1 where head k may see point i, which is outside fold k."""
    return (fold[:, None] != torch.arange(folds, device=fold.device)).float()


def fit_heads(
    features: Tensor,
    labels: Tensor,
    seen: Tensor,
    *,
    l2: float,
    shift: Tensor | None = None,
    start: Heads | None = None,
    steps: int = 100,
    tolerance: float = 0.1,
) -> Heads:
    """Minimise the objective above, each head by an L-BFGS of its own.

    Args:
        features: (N, D), standardised.
        labels: (N, C), rows that sum to 1.
        seen: (N, K), m.
        shift: (C,) added to the logits inside the loss.
        start: heads to begin from.
        steps: evaluations of the gradient, at the most.
        tolerance: of every coordinate, in units of about its standard error.
    """
    count, width = features.shape
    heads, classes = seen.shape[1], labels.shape[1]
    weight_of = float(seen.sum() / heads)
    # With p (1 - p) = 0.1 about the curvature: in V, W = V P, the problem is round whatever the
    # correlations of the features, a few tens of steps suffice, and 1 is a standard error.
    gram = features.T @ features * (0.1 * weight_of / count)
    ridge = l2 + 1e-4 * weight_of
    eye = torch.eye(width, dtype=torch.float64, device=features.device)
    factor = torch.linalg.cholesky(gram.double() + ridge * eye)
    inverse = torch.linalg.solve_triangular(factor, eye, upper=False).to(features)
    unit = 1 / math.sqrt(0.1 * weight_of + BIAS_L2)
    rows = max(1, NUMBERS // (heads * classes))

    def heads_at(x: Tensor) -> tuple[Tensor, Tensor]:
        v = x.view(-1, width + 1)
        return v[:, :width] @ inverse, v[:, width] * unit

    def gradient(x: Tensor) -> Tensor:
        weight, bias = heads_at(x)
        grad_weight, grad_bias = l2 * weight, BIAS_L2 * bias
        for k in range(0, count, rows):
            phi, q, m = (part[k : k + rows] for part in (features, labels, seen))
            # (K, C, n), points last: a softmax over ten classes that lie side by side in memory
            # takes a CPU twenty times as long, and most of all the time.
            logits = torch.addmm(bias[:, None], weight, phi.T).view(heads, classes, len(phi))
            if shift is not None:
                logits += shift[:, None]
            r = logits.softmax(1).sub_(q.T.contiguous()).mul_(m.T.contiguous()[:, None])
            grad_weight.addmm_(r.flatten(0, 1), phi)
            grad_bias += r.sum(-1).flatten()
        return torch.cat([grad_weight @ inverse.T, grad_bias[:, None] * unit], 1).view_as(x)

    first = features.new_zeros(heads, classes * (width + 1))
    if start is not None:
        v = start.weight.double().flatten(0, 1) @ factor
        bias = start.bias.double().view(-1, 1) / unit
        first = torch.cat([v, bias], 1).to(features).view_as(first)
    weight, bias = heads_at(descend(gradient, first, steps=steps, tolerance=tolerance))
    return Heads(weight.view(heads, classes, width), bias.view(heads, classes))
