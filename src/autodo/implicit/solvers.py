"""Solvers of H u = v: the inverse-Hessian product inside the hypergradient.

A solver sees H only as a function ``matvec``: u -> H u on tensors of v's shape, and says
how well it did: ``Solution.residual`` is |v - H u| / |v|. Nothing here reads a number back
from the device, so a solver never stalls a GPU; ``Solution.check`` does, when asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from autodo.errors import InputError, NumericalError

MatVec = Callable[[Tensor], Tensor]

POWER_ITERATIONS = 8
"""After which the largest eigenvalue is known well enough for a step of 0.9 of its inverse."""


@dataclass(frozen=True, kw_only=True)
class Solution:
    """u with the account of how it was found."""

    u: Tensor
    """The estimate of H^-1 v, in v's shape."""
    residual: Tensor
    """|v - H u| / |v|, a scalar on v's device. An estimate that is right up to a positive
    factor (Identity, a short Neumann series) serves as a direction though its residual is large."""
    diverged: Tensor
    """A boolean scalar on v's device: the iteration moved away from the solution."""
    solver: Solver

    def check(self) -> None:
        """Raise NumericalError if the solver diverged. Waits for the device."""
        if bool(self.diverged):
            raise NumericalError(
                f"{self.solver} diverged (relative residual {float(self.residual):.3g})",
                self.solver.divergence_cause,
                self.solver.divergence_cure,
            )


class Solver(Protocol):
    """Anything that turns (matvec, v) into a Solution."""

    divergence_cause: str
    divergence_cure: str

    def solve(self, matvec: MatVec, v: Tensor) -> Solution: ...


def norm(x: Tensor) -> Tensor:
    return x.square().sum().sqrt()


def relative_residual(matvec: MatVec, u: Tensor, v: Tensor) -> Tensor:
    return norm(v - matvec(u)) / norm(v).clamp_min(torch.finfo(v.dtype).tiny)


def power_start(like: Tensor) -> tuple[Tensor, Tensor]:
    """Two fixed, structureless vectors in the shape of ``like``: where power iteration starts."""
    angle = 1.0 + torch.arange(like.numel(), device=like.device, dtype=like.dtype).view_as(like)
    return torch.sin(angle), torch.cos(angle)


def largest_eigenvalue(matvec: MatVec, like: Tensor, iterations: int = POWER_ITERATIONS) -> Tensor:
    """|lambda_max| of a symmetric operator by power iteration, from a fixed start.

    Power iteration approaches from below; who divides by it should leave a margin.

    >>> H = torch.diag(torch.tensor([3.0, 1.0]))
    >>> round(float(largest_eigenvalue(lambda x: H @ x, torch.zeros(2))), 3)
    3.0
    """
    # Such vectors are reproducible, and hardly orthogonal to the answer. In few dimensions one of
    # them may be; halfway another joins, and no vector is orthogonal to both.
    x, other = power_start(like)
    tiny = torch.finfo(like.dtype).tiny
    eigenvalue = like.new_zeros(())
    for k in range(iterations):
        if k == iterations // 2:
            x = x / norm(x).clamp_min(tiny) + other / norm(other)
        x = matvec(x / norm(x).clamp_min(tiny))
        eigenvalue = torch.maximum(eigenvalue, norm(x))
    return eigenvalue


@dataclass(frozen=True)
class Neumann:
    """u = alpha * sum_{k=0..steps} (I - alpha H)^k v, the paper's solver.

    It converges to H^-1 v when every eigenvalue of H lies in (0, 2/alpha). With alpha = 0.01
    and 5 steps it is close to a scaled identity; ``alpha="auto"`` measures the largest
    eigenvalue by power iteration and takes 0.9 of its inverse.

    >>> H = torch.diag(torch.tensor([2.0, 0.5]))
    >>> Neumann(steps=200, alpha=0.5).solve(lambda x: H @ x, torch.ones(2)).u
    tensor([0.5000, 2.0000])
    """

    steps: int = 5
    alpha: float | str = 0.01

    divergence_cause = (
        "the terms of the series grow: alpha is above 2 / (largest eigenvalue of the Hessian), "
        "or the Hessian has negative eigenvalues"
    )
    divergence_cure = (
        'use Neumann(alpha="auto"), a smaller alpha, the loss "kl" (its Hessian has no negative '
        "eigenvalues), or ConjugateGradient with damping"
    )

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise InputError(f"Neumann steps is {self.steps}", "it must be 0 or more", "use 5")
        if self.alpha != "auto" and not (
            isinstance(self.alpha, int | float) and 0 < self.alpha < math.inf
        ):
            raise InputError(
                f"Neumann alpha is {self.alpha!r}", "it must be positive", 'use 0.01 or "auto"'
            )

    def solve(self, matvec: MatVec, v: Tensor) -> Solution:
        alpha: float | Tensor
        if isinstance(self.alpha, str):
            # Features that are all zero give H = 0; alpha then only scales the answer.
            alpha = 0.9 / largest_eigenvalue(matvec, v).clamp_min(1e-6)
        else:
            alpha = self.alpha
        term, total = v, v
        for _ in range(self.steps):
            term = term - alpha * matvec(term)
            total = total + term
        u = alpha * total
        # A convergent series has shrinking terms. Slightly negative curvature lets them grow a
        # little without harm in a few steps; twice the start is beyond that.
        diverged = ~(norm(term) <= 2.0 * norm(v))
        return Solution(
            u=u, residual=relative_residual(matvec, u, v), diverged=diverged, solver=self
        )


@dataclass(frozen=True)
class ConjugateGradient:
    """(H + damping I) u = v by conjugate gradients.

    Stops improving where the curvature stops being positive: a symmetric-KL Hessian can be
    indefinite, and damping is what makes it solvable. The residual is that of the damped system.

    >>> H = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
    >>> u = ConjugateGradient(steps=2, damping=0.0).solve(lambda x: H @ x, torch.ones(2)).u
    >>> torch.allclose(H @ u, torch.ones(2))
    True
    """

    steps: int = 10
    damping: float = 1e-2

    divergence_cause = "the damped Hessian is not positive definite along the first direction tried"
    divergence_cure = "raise the damping (ten times is a good next try), or use Neumann"

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"CG steps is {self.steps}", "it must be 1 or more", "use 10")
        if not 0 <= self.damping < math.inf:
            raise InputError(f"CG damping is {self.damping}", "it must not be negative", "use 0.01")

    def solve(self, matvec: MatVec, v: Tensor) -> Solution:
        def damped(x: Tensor) -> Tensor:
            return matvec(x) + self.damping * x

        tiny = torch.finfo(v.dtype).tiny
        u, r, p = torch.zeros_like(v), v, v
        rr = r.square().sum()
        active = rr > tiny
        first_positive = ~active  # v = 0 is solved by u = 0
        for step in range(self.steps):
            hp = damped(p)
            curvature = (p * hp).sum()
            active = active & (curvature > 0) & (rr > tiny)
            if step == 0:
                first_positive = first_positive | active
            a = torch.where(active, rr / torch.where(active, curvature, 1.0), 0.0)
            u, r = u + a * p, r - a * hp
            rr_next = r.square().sum()
            p = torch.where(active, r + (rr_next / rr.clamp_min(tiny)) * p, p)
            rr = rr_next
        residual = relative_residual(damped, u, v)
        diverged = ~first_positive | ~torch.isfinite(residual)
        return Solution(u=u, residual=residual, diverged=diverged, solver=self)


@dataclass(frozen=True)
class Identity:
    """u = v: the DARTS estimator, which takes H for the identity."""

    divergence_cause = "v itself is not finite"
    divergence_cure = "look at the trusted batch: its loss or features are not finite"

    def solve(self, matvec: MatVec, v: Tensor) -> Solution:
        residual = relative_residual(matvec, v, v)
        return Solution(u=v, residual=residual, diverged=~torch.isfinite(norm(v)), solver=self)
