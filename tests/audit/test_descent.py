"""Many small L-BFGS at once against scipy's, one function at a time, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from autodo.auditing.descent import descend


def quartics(count: int = 3, width: int = 30) -> tuple[Tensor, Tensor]:
    """Matrices A (K, P, P) and goals c (K, P) of f_k = |A_k x - c_k|^2 / 2 + |x|_4^4 / 4."""
    generator = torch.Generator().manual_seed(0)
    near_one = torch.eye(width) + 0.1 * torch.randn(count, width, width, generator=generator)
    return near_one.double(), torch.randn(count, width, generator=generator).double()


def gradient(matrices: Tensor, goals: Tensor, x: Tensor) -> Tensor:
    misses = torch.einsum("kij,kj->ki", matrices, x) - goals
    return torch.einsum("kij,ki->kj", matrices, misses) + x**3


def test_each_minimum_is_that_of_scipy() -> None:
    matrices, goals = quartics()
    start = torch.full_like(goals, 4.0)
    found = descend(lambda x: gradient(matrices, goals, x), start, steps=200, tolerance=1e-9)

    for matrix, goal, ours in zip(matrices, goals, found, strict=True):

        def objective(x: np.ndarray, matrix=matrix, goal=goal) -> tuple[float, np.ndarray]:
            at = torch.from_numpy(x)
            value = (matrix @ at - goal).square().sum() / 2 + (at**4).sum() / 4
            return float(value), gradient(matrix[None], goal[None], at[None])[0].numpy()

        options = {"gtol": 1e-9, "ftol": 0.0, "maxiter": 1000}
        theirs = minimize(objective, np.zeros(30), jac=True, method="L-BFGS-B", options=options)
        np.testing.assert_allclose(ours.numpy(), theirs.x, atol=1e-7)


def test_functions_share_nothing_but_the_end() -> None:
    matrices, goals = quartics()
    # A tolerance that nothing reaches: each makes all the steps.
    options = {"steps": 15, "tolerance": 0.0}
    start = torch.zeros_like(goals)
    together = descend(lambda x: gradient(matrices, goals, x), start, **options)
    for k in range(3):
        part = slice(k, k + 1)
        alone = descend(
            lambda x, p=part: gradient(matrices[p], goals[p], x), start[part], **options
        )
        torch.testing.assert_close(alone, together[part], atol=1e-9, rtol=0)


@pytest.mark.parametrize("bend", [1e-3, 1.0, 1e3])
def test_steps_that_go_too_far_are_not_taken(bend: float) -> None:
    """The first guess of the curvature is off by up to a thousand, to either side."""

    def value(x: Tensor) -> float:
        return float(bend * (1 + x**2).sqrt().sum())

    values = []

    def slope(x: Tensor) -> Tensor:
        values.append(value(x))
        return bend * x / (1 + x**2).sqrt()

    start = torch.tensor([[5.0, -3.0, 1.0]], dtype=torch.float64)
    found = descend(slope, start, steps=300, tolerance=1e-6 * bend)
    assert found.abs().max() < 1e-5
    assert value(found) <= min(values) * (1 + 1e-9)


def test_it_stays_where_nothing_is_to_be_gained() -> None:
    start = torch.ones(2, 3)
    assert torch.equal(descend(lambda x: 1e-3 * x, start, steps=9, tolerance=1e-2), start)


def test_it_ends_where_a_gradient_is_no_number() -> None:
    asked = []

    def broken(x: Tensor) -> Tensor:
        asked.append(x)
        return torch.full_like(x, torch.nan)

    descend(broken, torch.ones(1, 2), steps=50, tolerance=1e-3)
    assert len(asked) == 1
