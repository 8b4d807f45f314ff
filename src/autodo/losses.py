"""The losses of one training point, with the derivatives that the closed form needs.

p = softmax(z) is the network's belief, q the (soft) label, d = log p - log q:

    KL, cross-entropy   l = KL(q||p)                      r = dl/dz = p - q
    symmetric KL        l = 1/2 [KL(q||p) + KL(p||q)]     r = 1/2 [(p - q) + p (d - p.d)]

``curvature`` is J u = (dr/dz) u and ``label_pullback`` is d(r.a)/dS with q = softmax(S).
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from autodo.errors import InputError


def centre(x: Tensor, p: Tensor) -> Tensor:
    """x - p.x along the last axis: x measured from its mean under p."""
    return x - (p * x).sum(-1, keepdim=True)


class Loss(Protocol):
    """A loss of logits against soft labels; every argument and result is (B, C) unless said."""

    name: str

    def value(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        """l of each point: (B,)."""
        ...

    def residual(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        """r = dl/dz."""
        ...

    def curvature(self, u: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
        """J u, with J = dr/dz."""
        ...

    def label_pullback(self, a: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
        """d(r.a)/dS, where log_q = log_softmax(S) and a is constant."""
        ...


class KL:
    """KL(q||p). With hard labels it is the cross-entropy.

    >>> import torch
    >>> log_p = torch.tensor([[0.25, 0.75]]).log()
    >>> log_q = torch.tensor([[0.5, 0.5]]).log()
    >>> KL().residual(log_p, log_q)
    tensor([[-0.2500,  0.2500]])
    """

    name = "kl"

    def value(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        q = log_q.exp()
        # 0 log 0 = 0: a hard label has log q = -inf, and 0 * -inf would be NaN.
        return torch.where(q > 0, q * (log_q - log_p), 0.0).sum(-1)

    def residual(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return log_p.exp() - log_q.exp()

    def curvature(self, u: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
        p = log_p.exp()
        return p * centre(u, p)

    def label_pullback(self, a: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
        q = log_q.exp()
        return -q * centre(a, q)


class CrossEntropy(KL):
    """-q.log p, which is KL plus the entropy of q: its derivatives here are KL's."""

    name = "cross_entropy"

    def value(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return -(log_q.exp() * log_p).sum(-1)


class SymmetricKL:
    """1/2 [KL(q||p) + KL(p||q)], the paper's choice when the labels are learned too."""

    name = "symmetric_kl"

    def value(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        return 0.5 * ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)

    def residual(self, log_p: Tensor, log_q: Tensor) -> Tensor:
        p, q = log_p.exp(), log_q.exp()
        return 0.5 * ((p - q) + p * centre(log_p - log_q, p))

    def curvature(self, u: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
        p, d = log_p.exp(), log_p - log_q
        dp = p * centre(u, p)
        return 0.5 * (dp * (2 + centre(d, p)) - p * (dp * d).sum(-1, keepdim=True))

    def label_pullback(self, a: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
        p, q = log_p.exp(), log_q.exp()
        return -0.5 * (q * centre(a, q) + p * centre(a, p))


LOSSES: dict[str, Loss] = {loss.name: loss for loss in (SymmetricKL(), KL(), CrossEntropy())}


def get_loss(name: str) -> Loss:
    """The loss of that name: symmetric_kl, kl or cross_entropy."""
    if name not in LOSSES:
        raise InputError(
            f"no loss is called {name!r}",
            f"the losses are {', '.join(LOSSES)}",
            "choose one of them",
        )
    return LOSSES[name]
