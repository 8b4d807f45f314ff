"""The hypergradient through the last linear layer, in closed form (design: "No double backward").

With phi_i the input of the last layer, z_i = W phi_i + b and r_i = dl_i/dz_i:

    v = mean_j (p_j - y_j) phi_j^T            over the trusted batch
    H[V] = mean_i w_i (J_i V phi_i) phi_i^T    u = H^-1 v by a solver
    dL_v/dlambda = - d/dlambda [ mean_i w_i r_i . (u phi_i) ]   with u held constant

The bracket is an ordinary scalar: weights and labels get their gradient from features alone,
augmentation gets its by one backward pass from ``HeadHypergradient.features`` to the pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from autodo.errors import InputError
from autodo.implicit.solvers import Neumann, Solution, Solver
from autodo.losses import CrossEntropy, Loss, get_loss


@dataclass(frozen=True, kw_only=True)
class HeadHypergradient:
    """dL_v / d(weight_logits, label_logits, features) of one batch, and what led to it."""

    weight_logits: Tensor
    """(B,)"""
    label_logits: Tensor
    """(B, C); zero when the training loss uses hard labels."""
    features: Tensor
    """(B, D)"""
    solution: Solution
    trusted_loss: Tensor
    """Mean cross-entropy of the trusted batch."""
    trusted_gradient: Tensor
    """v = dL_v/dW, (C, D)."""
    train_gradient: Tensor
    """dL/dW = mean_i w_i r_i phi_i^T, (C, D)."""


def head_hypergradient(
    features: Tensor,
    head_weight: Tensor,
    head_bias: Tensor | None,
    weight_logits: Tensor,
    label_logits: Tensor,
    trusted_features: Tensor,
    trusted_labels: Tensor,
    *,
    solver: Solver | None = None,
    symmetric: bool = True,
    labels: Tensor | None = None,
    loss: str | None = None,
    logit_adjustment: Tensor | None = None,
) -> HeadHypergradient:
    """Hypergradient of the trusted cross-entropy for one training batch.

    Args:
        features: (B, D) inputs of the head for the training batch.
        head_weight: (C, D). head_bias: (C,) or None.
        weight_logits: (B,) the W of each point; w = softplus(W) / ln 2.
        label_logits: (B, C) the S of each point; q = softmax(S).
        trusted_features: (M, D). trusted_labels: (M,) integers.
        solver: of H u = v; Neumann(5, 0.01) unless told.
        symmetric: symmetric KL, else plain KL; ``loss`` names one outright.
        labels: (B,) hard labels; when given, the training loss is their cross-entropy.
        logit_adjustment: (C,) added to the logits of the training loss only (log prior).

    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch._C.Generator object at ...>
    >>> g = head_hypergradient(torch.randn(4, 3), torch.randn(2, 3), None, torch.zeros(4),
    ...                        torch.zeros(4, 2), torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 0]))
    >>> g.weight_logits.shape, g.label_logits.shape, g.features.shape
    (torch.Size([4]), torch.Size([4, 2]), torch.Size([4, 3]))
    """
    if features.ndim != 2 or features.shape[1] != head_weight.shape[1]:
        raise InputError(
            f"features have shape {tuple(features.shape)}",
            f"the head takes (batch, {head_weight.shape[1]})",
            "give the input of the last linear layer",
        )
    solver = Neumann() if solver is None else solver
    batch = len(features)
    num_classes = len(head_weight)

    logits = F.linear(features, head_weight, head_bias)
    if logit_adjustment is not None:
        logits = logits + logit_adjustment
    log_p = F.log_softmax(logits, -1)
    training_loss: Loss
    if labels is None:
        training_loss = get_loss(loss or ("symmetric_kl" if symmetric else "kl"))
        log_q = F.log_softmax(label_logits, -1)
    else:
        # Hard labels: q = onehot, whose logarithm only ever appears as exp(log q) here.
        training_loss = CrossEntropy()
        log_q = F.one_hot(labels, num_classes).to(log_p.dtype).log()
    w = F.softplus(weight_logits) / math.log(2)
    r = training_loss.residual(log_p, log_q)

    trusted_logits = F.linear(trusted_features, head_weight, head_bias)
    trusted_p = trusted_logits.softmax(-1)
    trusted_y = F.one_hot(trusted_labels, num_classes).to(trusted_p.dtype)
    v = (trusted_p - trusted_y).T @ trusted_features / len(trusted_features)

    def matvec(direction: Tensor) -> Tensor:
        j = training_loss.curvature(features @ direction.T, log_p, log_q)
        return (w[:, None] * j).T @ features / batch

    solution = solver.solve(matvec, v)
    a = features @ solution.u.T  # u phi_i, (B, C)
    scale = -w[:, None] / batch
    if labels is None:
        grad_labels = scale * training_loss.label_pullback(a, log_p, log_q)
    else:
        grad_labels = torch.zeros_like(label_logits)
    j = training_loss.curvature(a, log_p, log_q)
    return HeadHypergradient(
        weight_logits=-(r * a).sum(-1) * torch.sigmoid(weight_logits) / (math.log(2) * batch),
        label_logits=grad_labels,
        features=scale * (j @ head_weight + r @ solution.u),
        solution=solution,
        trusted_loss=F.cross_entropy(trusted_logits, trusted_labels),
        trusted_gradient=v,
        train_gradient=(w[:, None] * r).T @ features / batch,
    )
