"""The hypergradient by second-order autograd, for any theta: several layers, any head.

    dL_v/dlambda = - dL_v/dtheta . H^-1 . d2L/(dtheta dlambda)

This is the slow oracle that the closed form of ``head`` is proven against, and the route
for users whose theta is more than the last linear layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from autodo.implicit.solvers import Neumann, Solution, Solver


@dataclass(frozen=True, kw_only=True)
class AutogradHypergradient:
    """One gradient per hyperparameter tensor, with the solver's account."""

    gradients: tuple[Tensor, ...]
    solution: Solution


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


def autograd_hypergradient(
    train_loss: Tensor,
    trusted_loss: Tensor,
    theta: Sequence[Tensor],
    hyper: Sequence[Tensor],
    *,
    solver: Solver | None = None,
) -> AutogradHypergradient:
    """Implicit hypergradient of ``trusted_loss`` with respect to ``hyper``.

    Both losses are scalars with a graph: ``train_loss`` of theta and hyper, ``trusted_loss`` of
    theta. ``theta`` are the parameters that the training loss has (nearly) minimised.

    The quadratic 1/2 (theta - lambda)^2 has theta* = lambda, so the hypergradient of
    1/2 theta^2 is theta:

    >>> theta = torch.tensor([3.0], requires_grad=True)
    >>> lam = torch.tensor([3.0], requires_grad=True)
    >>> train, trusted = 0.5 * (theta - lam).square().sum(), 0.5 * theta.square().sum()
    >>> autograd_hypergradient(train, trusted, [theta], [lam],
    ...                        solver=Neumann(steps=0, alpha=1.0)).gradients
    (tensor([3.]),)
    """
    solver = Neumann() if solver is None else solver
    theta, hyper = list(theta), list(hyper)
    v = flatten(torch.autograd.grad(trusted_loss, theta)).detach()
    gradient = flatten(torch.autograd.grad(train_loss, theta, create_graph=True))

    def matvec(direction: Tensor) -> Tensor:
        products = torch.autograd.grad(
            gradient, theta, direction, retain_graph=True, materialize_grads=True
        )
        return flatten(products).detach()

    solution = solver.solve(matvec, v)
    mixed = torch.autograd.grad(gradient, hyper, -solution.u, materialize_grads=True)
    return AutogradHypergradient(
        gradients=tuple(g.detach() for g in mixed),
        solution=solution,
    )
