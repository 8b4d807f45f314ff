"""The autograd route for a theta of several layers against an explicit dense Hessian."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from cases import assert_near, seeded
from torch import Tensor

from autodo.implicit import ConjugateGradient, Identity, Neumann, autograd_hypergradient

SHAPES = ((3, 2), (3,), (2, 3))
"""theta: a hidden layer with bias, and a head."""


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


INPUTS, TRUSTED_INPUTS = normal(1, 7, 2), normal(2, 5, 2)
TRUSTED_LABELS = torch.tensor([0, 1, 1, 0, 1])
RIDGE = 1.0  # makes the Hessian of this non-convex network positive definite


def unpack(flat: Tensor) -> list[Tensor]:
    parts = flat.split([torch.Size(shape).numel() for shape in SHAPES])
    return [part.view(shape) for part, shape in zip(parts, SHAPES, strict=True)]


def network(theta: list[Tensor], inputs: Tensor) -> Tensor:
    first, bias, head = theta
    return torch.tanh(inputs @ first.T + bias) @ head.T


def train_loss(theta: list[Tensor], weight_logits: Tensor, label_logits: Tensor) -> Tensor:
    log_p = F.log_softmax(network(theta, INPUTS), -1)
    cross_entropy = -(label_logits.softmax(-1) * log_p).sum(-1)
    ridge = sum(t.square().sum() for t in theta)
    return (F.softplus(weight_logits) * cross_entropy).mean() + RIDGE / 2 * ridge


def trusted_loss(theta: list[Tensor]) -> Tensor:
    return F.cross_entropy(network(theta, TRUSTED_INPUTS), TRUSTED_LABELS)


FLAT = normal(3, sum(torch.Size(shape).numel() for shape in SHAPES))
HYPER = (normal(4, 7), normal(5, 7, 2))


def dense_hypergradient(inverse: str) -> list[Tensor]:
    """- v H^-1 d2L/(dtheta dlambda), with every matrix written out."""
    v = torch.autograd.functional.jacobian(lambda flat: trusted_loss(unpack(flat)), FLAT)
    hessian = torch.autograd.functional.hessian(lambda flat: train_loss(unpack(flat), *HYPER), FLAT)
    assert torch.linalg.eigvalsh(hessian).min() > 0.1
    u = torch.linalg.solve(hessian, v) if inverse == "exact" else v

    def gradient(*hyper: Tensor) -> Tensor:
        flat = FLAT.clone().requires_grad_()
        loss = train_loss(unpack(flat), *hyper)
        return torch.autograd.grad(loss, flat, create_graph=True)[0]

    mixed = torch.autograd.functional.jacobian(gradient, HYPER)
    return [-torch.tensordot(u, block, dims=1) for block in mixed]


@pytest.mark.parametrize(
    ("solver", "inverse", "relative"),
    [
        (ConjugateGradient(steps=40, damping=0.0), "exact", 1e-9),
        (Neumann(steps=400, alpha="auto"), "exact", 1e-9),
        (Identity(), "identity", 1e-12),
    ],
    ids=str,
)
def test_several_layers_equal_the_dense_solve(solver, inverse, relative):
    theta = [part.clone().requires_grad_() for part in unpack(FLAT)]
    hyper = [h.clone().requires_grad_() for h in HYPER]
    result = autograd_hypergradient(
        train_loss(theta, *hyper), trusted_loss(theta), theta, hyper, solver=solver
    )
    for actual, expected in zip(result.gradients, dense_hypergradient(inverse), strict=True):
        assert_near(actual, expected, relative)
        assert not actual.requires_grad
    assert all(t.grad is None for t in (*theta, *hyper))


def test_a_hyperparameter_that_the_loss_ignores_has_a_zero_gradient():
    theta = [part.clone().requires_grad_() for part in unpack(FLAT)]
    hyper = [h.clone().requires_grad_() for h in HYPER]
    unused = torch.ones(2, 2, dtype=torch.float64, requires_grad=True)
    result = autograd_hypergradient(
        train_loss(theta, *hyper), trusted_loss(theta), theta, [*hyper, unused]
    )
    assert torch.equal(result.gradients[2], torch.zeros(2, 2, dtype=torch.float64))


def test_the_hypergradient_is_the_slope_of_the_retrained_trusted_loss():
    """Training to the optimum for two nearby lambdas and differencing: no implicit function."""

    def retrained(weight_logits: Tensor) -> Tensor:
        # Newton: a dozen steps reach the optimum to rounding on this ridge-regularised problem.
        flat = FLAT.clone() * 0.1
        for _ in range(30):

            def loss(x: Tensor) -> Tensor:
                return train_loss(unpack(x), weight_logits, HYPER[1])

            step = torch.linalg.solve(
                torch.autograd.functional.hessian(loss, flat),
                torch.autograd.functional.jacobian(loss, flat),
            )
            flat = flat - step
        assert step.norm() < 1e-12
        return flat

    theta = [part.clone().requires_grad_() for part in unpack(retrained(HYPER[0]))]
    weight_logits = HYPER[0].clone().requires_grad_()
    result = autograd_hypergradient(
        train_loss(theta, weight_logits, HYPER[1]),
        trusted_loss(theta),
        theta,
        [weight_logits],
        solver=ConjugateGradient(steps=40, damping=0.0),
    )
    h = 1e-4
    for i in range(3):
        shift = torch.zeros(7, dtype=torch.float64)
        shift[i] = h
        up, down = (trusted_loss(unpack(retrained(HYPER[0] + s))) for s in (shift, -shift))
        slope = (up - down) / (2 * h)
        torch.testing.assert_close(result.gradients[0][i], slope, rtol=1e-5, atol=1e-10)
