"""The hypergradient through the last linear layer, in closed form (design: "No double backward").

With phi_i the input of the last layer, z_i = W phi_i + b and r_i = dl_i/dz_i:

    v = mean_j (p_j - y_j) phi_j^T            over the trusted batch
    H[V] = mean_i w_i (J_i V phi_i) phi_i^T    u = H^-1 v by a solver
    dL_v/dlambda = - d/dlambda [ mean_i w_i r_i . (u phi_i) ]   with u held constant

The bracket is an ordinary scalar: weights and labels get their gradient from features alone,
augmentation gets its by one backward pass from ``HeadHypergradient.features`` to the pixels.

On CUDA a Neumann solution and all gradients take some twenty launches (``head_triton``); the plain
torch operations here, some five hundred, serve everything else and are the oracle of the tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from autodo.errors import InputError
from autodo.implicit.solvers import Neumann, Solution, Solver
from autodo.kernels import has_triton
from autodo.losses import CrossEntropy, Loss, get_loss

FUSED_POINTS, FUSED_CLASSES, FUSED_WIDTH = 512, 32, 8192
"""The largest batch, and head, whose algebra the fused kernels take."""


@dataclass(frozen=True, kw_only=True)
class HeadHypergradient:
    """dL_v / d(weight_logits, label_logits, features) of one batch, and what led to it."""

    weight_logits: Tensor
    """(B,)"""
    label_logits: Tensor
    """(B, C); zero when the training loss uses hard labels."""
    solution: Solution
    trusted_loss: Tensor
    """Mean cross-entropy of the trusted batch."""
    trusted_gradient: Tensor
    """v = dL_v/dW, (C, D)."""
    finite: Tensor
    """A boolean scalar: the gradients of weights and labels are all finite. Those of a point whose
    features are not finite never are."""
    weighted_residual: Tensor = field(repr=False)
    """w_i r_i / B, (B, C)."""
    weighted_curvature: Tensor = field(repr=False)
    """w_i J_i u phi_i / B, (B, C)."""
    inputs: tuple[Tensor, Tensor] = field(repr=False)
    """The features (B, D) and the head's weight (C, D), as given."""

    # What not everybody asks for is made at the first reading, from ``inputs`` as they are then.

    @cached_property
    def features(self) -> Tensor:
        """dL_v/dphi: (B, D)."""
        _, head_weight = self.inputs
        along = self.weighted_curvature @ head_weight
        return -torch.addmm(along, self.weighted_residual, self.solution.u)

    @cached_property
    def train_gradient(self) -> Tensor:
        """dL/dW = mean_i w_i r_i phi_i^T, (C, D)."""
        return self.weighted_residual.T @ self.inputs[0]


def all_finite(*tensors: Tensor) -> Tensor:
    """Whether every number is finite, as a scalar on the device.

    >>> all_finite(torch.ones(2), torch.tensor([1.0, math.inf]))
    tensor(False)
    """
    # x - x is 0, or NaN where x is not finite.
    return torch.stack([(x - x).sum() for x in tensors]).sum() == 0


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
    fused: bool = True,
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
        fused: use the fused kernels where they can run; False is for comparisons.

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
    training_loss: Loss = (
        get_loss(loss or ("symmetric_kl" if symmetric else "kl"))
        if labels is None
        else CrossEntropy()
    )
    if (
        fused
        and isinstance(solver, Neumann)
        and _can_fuse(features, head_weight, head_bias, weight_logits, label_logits,
                      trusted_features)
    ):  # fmt: skip
        from autodo.implicit import head_triton

        dual = head_triton.solve(
            features, head_weight, head_bias, weight_logits, label_logits,
            trusted_features, trusted_labels, solver=solver, loss=training_loss.name,
            labels=labels, logit_adjustment=logit_adjustment,
        )  # fmt: skip
        return HeadHypergradient(
            weight_logits=dual.weight_logits,
            label_logits=dual.label_logits,
            solution=Solution(
                u=dual.u, residual=dual.residual, diverged=dual.diverged, solver=solver
            ),
            trusted_loss=dual.trusted_loss,
            trusted_gradient=dual.trusted_gradient,
            finite=dual.finite,
            weighted_residual=dual.weighted_residual,
            weighted_curvature=dual.weighted_curvature,
            inputs=(features, head_weight),
        )
    batch = len(features)
    num_classes = len(head_weight)

    logits = F.linear(features, head_weight, head_bias)
    if logit_adjustment is not None:
        logits = logits + logit_adjustment
    log_p = F.log_softmax(logits, -1)
    if labels is None:
        log_q = F.log_softmax(label_logits, -1)
    else:
        # Hard labels: q = onehot, whose logarithm only ever appears as exp(log q) here.
        log_q = F.one_hot(labels, num_classes).to(log_p.dtype).log()
    scale = F.softplus(weight_logits)[:, None] / (math.log(2) * batch)  # w / B
    r = training_loss.residual(log_p, log_q)

    trusted_logits = F.linear(trusted_features, head_weight, head_bias)
    trusted_p = trusted_logits.softmax(-1)
    trusted_y = F.one_hot(trusted_labels, num_classes).to(trusted_p.dtype)
    v = (trusted_p - trusted_y).T @ trusted_features / len(trusted_features)

    def matvec(direction: Tensor) -> Tensor:
        j = training_loss.curvature(features @ direction.T, log_p, log_q)
        return (scale * j).T @ features

    solution = solver.solve(matvec, v)
    a = features @ solution.u.T  # u phi_i, (B, C)
    if labels is None:
        grad_labels = -scale * training_loss.label_pullback(a, log_p, log_q)
    else:
        grad_labels = torch.zeros_like(label_logits)
    grad_weights = -(r * a).sum(-1) * torch.sigmoid(weight_logits) / (math.log(2) * batch)
    return HeadHypergradient(
        weight_logits=grad_weights,
        label_logits=grad_labels,
        solution=solution,
        trusted_loss=F.cross_entropy(trusted_logits, trusted_labels),
        trusted_gradient=v,
        finite=all_finite(grad_weights, grad_labels),
        weighted_residual=scale * r,
        weighted_curvature=scale * training_loss.curvature(a, log_p, log_q),
        inputs=(features, head_weight),
    )


def _can_fuse(features: Tensor, head_weight: Tensor, *others: Tensor | None) -> bool:
    """The kernels are for float32 on CUDA, for batches of a usual size, and know no gradient."""
    tensors = [features, head_weight, *(x for x in others if x is not None)]
    return (
        features.is_cuda
        and all(x.dtype == torch.float32 and x.device == features.device for x in tensors)
        and 0 < len(features) <= FUSED_POINTS
        and 1 < len(head_weight) <= FUSED_CLASSES
        and features.shape[1] <= FUSED_WIDTH
        and not (torch.is_grad_enabled() and any(x.requires_grad for x in tensors))
        and has_triton()
    )
