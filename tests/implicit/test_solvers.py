"""The solvers against dense linear algebra, and what they say when they fail."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from cases import assert_near, seeded
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from autodo.errors import InputError, NumericalError
from autodo.implicit import ConjugateGradient, Identity, Neumann, Solution, Solver
from autodo.implicit.solvers import largest_eigenvalue

sizes = st.integers(1, 12)
seeds = st.integers(0, 2**32 - 1)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def symmetric(size: int, seed: int) -> Tensor:
    matrix = normal(seed, size, size)
    return (matrix + matrix.T) / 2


def positive_definite(size: int, seed: int, condition: float = 20.0) -> Tensor:
    """A random symmetric matrix with its largest eigenvalue at 2 and its smallest above 2/20."""
    basis, _ = torch.linalg.qr(normal(seed, size, size))
    spread = torch.rand(size, generator=seeded(seed + 1), dtype=torch.float64)
    spread[0] = 1.0
    return basis @ torch.diag(2 * condition ** (spread - 1)) @ basis.T


def solve(solver: Solver, matrix: Tensor, v: Tensor) -> Solution:
    return solver.solve(lambda x: matrix @ x, v)


@settings(max_examples=50, deadline=None)
@given(
    size=sizes,
    seed=seeds,
    steps=st.integers(0, 12),
    alpha=st.sampled_from((0.01, 0.1, 0.5)),
)
def test_neumann_is_the_polynomial_of_the_dense_matrix(size, seed, steps, alpha):
    matrix, v = symmetric(size, seed), normal(seed + 1, size)
    contraction = torch.eye(size, dtype=torch.float64) - alpha * matrix
    polynomial = alpha * sum(torch.linalg.matrix_power(contraction, k) for k in range(steps + 1))
    solution = solve(Neumann(steps=steps, alpha=alpha), matrix, v)
    assert_near(solution.u, polynomial @ v, 1e-10)


@settings(max_examples=50, deadline=None)
@given(size=sizes, seed=seeds)
@example(size=2, seed=53969)  # its leading eigenvector is orthogonal to the first start
def test_automatic_alpha_converges_on_positive_definite_matrices(size, seed):
    matrix, v = positive_definite(size, seed), normal(seed + 2, size)
    residuals = [
        solve(Neumann(steps=steps, alpha="auto"), matrix, v).residual.item()
        for steps in (0, 2, 5, 15, 50, 150)
    ]
    for before, after in pairwise(residuals):
        assert after < before or before < 1e-14
    # |1 - alpha lambda| < 1 - 0.9/20 for every eigenvalue: 600 steps leave 1e-12 of the error.
    solution = solve(Neumann(steps=600, alpha="auto"), matrix, v)
    assert_near(solution.u, torch.linalg.solve(matrix, v), 1e-8)
    solution.check()


def test_automatic_alpha_scales_with_the_matrix():
    """H -> 1000 H must only divide u by 1000, which no fixed alpha does."""
    matrix, v = positive_definite(6, 0), normal(1, 6)
    once = solve(Neumann(steps=10, alpha="auto"), matrix, v)
    scaled = solve(Neumann(steps=10, alpha="auto"), 1000 * matrix, v)
    assert_near(scaled.u * 1000, once.u, 1e-10)


@settings(max_examples=30, deadline=None)
@given(size=sizes, seed=seeds)
def test_largest_eigenvalue_is_approached_from_below(size, seed):
    matrix = positive_definite(size, seed)
    estimate = largest_eigenvalue(lambda x: matrix @ x, torch.zeros(size, dtype=torch.float64))
    # Half would let Neumann's 0.9 / estimate reach 2 / lambda_max, where the series diverges.
    assert 0.45 * 2 < estimate.item() <= 2 * (1 + 1e-12)


SOLVERS = (Neumann(steps=3, alpha=0.1), Neumann(steps=3, alpha="auto"), Identity())


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
def test_residual_is_that_of_the_answer(solver):
    matrix, v = positive_definite(7, 3), normal(4, 7)
    solution = solve(solver, matrix, v)
    expected = torch.linalg.vector_norm(v - matrix @ solution.u) / torch.linalg.vector_norm(v)
    torch.testing.assert_close(solution.residual, expected, rtol=1e-12, atol=0)
    assert solution.solver is solver


def test_residual_of_conjugate_gradient_is_that_of_the_damped_system():
    matrix, v = positive_definite(7, 3), normal(4, 7)
    solution = solve(ConjugateGradient(steps=3, damping=0.5), matrix, v)
    damped = matrix + 0.5 * torch.eye(7, dtype=torch.float64)
    expected = torch.linalg.vector_norm(v - damped @ solution.u) / torch.linalg.vector_norm(v)
    assert expected > 1e-3
    torch.testing.assert_close(solution.residual, expected, rtol=1e-12, atol=0)


@settings(max_examples=50, deadline=None)
@given(size=sizes, seed=seeds, damping=st.sampled_from((0.0, 1e-2, 1.0)))
def test_conjugate_gradient_solves_positive_definite_systems(size, seed, damping):
    matrix, v = positive_definite(size, seed), normal(seed + 2, size)
    solution = solve(ConjugateGradient(steps=size + 5, damping=damping), matrix, v)
    damped = matrix + damping * torch.eye(size, dtype=torch.float64)
    assert_near(solution.u, torch.linalg.solve(damped, v), 1e-9)
    solution.check()


@settings(max_examples=30, deadline=None)
@given(size=sizes, seed=seeds)
def test_conjugate_gradient_solves_indefinite_systems_that_damping_lifts(size, seed):
    matrix, v = symmetric(size, seed), normal(seed + 2, size)
    damping = 0.5 - min(0.0, torch.linalg.eigvalsh(matrix).min().item())
    solution = solve(ConjugateGradient(steps=3 * size + 5, damping=damping), matrix, v)
    damped = matrix + damping * torch.eye(size, dtype=torch.float64)
    assert_near(solution.u, torch.linalg.solve(damped, v), 1e-8)
    solution.check()


def test_conjugate_gradient_is_done_after_as_many_steps_as_eigenvalues():
    matrix = torch.diag(torch.tensor([1.0, 1.0, 3.0, 3.0, 3.0], dtype=torch.float64))
    v = normal(0, 5)
    solution = solve(ConjugateGradient(steps=2, damping=0.0), matrix, v)
    assert_near(solution.u, torch.linalg.solve(matrix, v), 1e-12)
    assert solve(ConjugateGradient(steps=1, damping=0.0), matrix, v).residual > 0.1


def test_conjugate_gradient_keeps_its_answer_when_asked_for_needless_steps():
    matrix, v = positive_definite(4, 5), normal(6, 4)
    solution = solve(ConjugateGradient(steps=500, damping=0.0), matrix, v)
    assert_near(solution.u, torch.linalg.solve(matrix, v), 1e-11)


def test_conjugate_gradient_stops_at_negative_curvature_with_what_it_has():
    matrix = torch.diag(torch.tensor([2.0, -1.0], dtype=torch.float64))
    v = torch.tensor([1.0, 0.5], dtype=torch.float64)
    solution = solve(ConjugateGradient(steps=10, damping=0.0), matrix, v)
    first = v * (v @ v) / (v @ matrix @ v)  # the one step of steepest descent
    torch.testing.assert_close(solution.u, first)
    solution.check()


@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_identity_returns_v(shape):
    v = normal(0, *shape)
    solution = Identity().solve(lambda x: 3 * x, v)
    assert torch.equal(solution.u, v)
    torch.testing.assert_close(solution.residual, torch.tensor(2.0, dtype=torch.float64))
    solution.check()


def test_identity_says_when_v_is_not_finite():
    solution = Identity().solve(lambda x: x, torch.tensor([1.0, math.nan]))
    with pytest.raises(NumericalError, match="trusted batch"):
        solution.check()


ALL = (*SOLVERS, ConjugateGradient(steps=4, damping=0.1), ConjugateGradient(steps=4, damping=0.0))


@pytest.mark.parametrize("solver", ALL, ids=str)
def test_the_shape_of_v_does_not_matter(solver):
    matrix, v = positive_definite(6, 7), normal(8, 6)
    folded = solver.solve(lambda x: (matrix @ x.flatten()).view(2, 3), v.view(2, 3))
    assert_near(folded.u.flatten(), solve(solver, matrix, v).u, 1e-12)


@pytest.mark.parametrize("solver", ALL, ids=str)
def test_a_zero_v_has_a_zero_answer(solver):
    solution = solve(solver, positive_definite(4, 9), torch.zeros(4, dtype=torch.float64))
    assert torch.equal(solution.u, torch.zeros(4, dtype=torch.float64))
    assert solution.residual.item() == 0
    solution.check()


@pytest.mark.parametrize("solver", ALL, ids=str)
def test_a_zero_matrix_leaves_everything_finite(solver):
    solution = solve(solver, torch.zeros(4, 4, dtype=torch.float64), normal(10, 4))
    assert solution.u.isfinite().all()
    assert solution.residual.isfinite()


def test_too_large_an_alpha_is_named_with_the_cure():
    matrix, v = positive_definite(4, 11), normal(12, 4)
    solution = solve(Neumann(steps=20, alpha=2.0), matrix, v)  # alpha * 2 = 4, beyond 2
    with pytest.raises(NumericalError) as error:
        solution.check()
    assert "alpha=2.0" in error.value.fact
    assert "alpha is above 2 / (largest eigenvalue" in error.value.cause
    assert 'alpha="auto"' in error.value.cure
    assert f"{solution.residual.item():.3g}" in error.value.fact


def test_an_overflow_of_the_series_counts_as_divergence():
    v = torch.ones(2)
    solution = solve(Neumann(steps=200, alpha=100.0), torch.diag(torch.tensor([1.0, 2.0])), v)
    assert bool(solution.diverged)


def test_alpha_just_below_its_bound_is_no_divergence():
    matrix, v = positive_definite(4, 11), normal(12, 4)
    solve(Neumann(steps=200, alpha=0.99), matrix, v).check()


def test_conjugate_gradient_on_a_negative_matrix_says_to_raise_the_damping():
    matrix, v = -positive_definite(4, 13), normal(14, 4)
    solution = solve(ConjugateGradient(steps=5, damping=0.01), matrix, v)
    assert solution.u.isfinite().all()
    with pytest.raises(NumericalError, match="not positive definite") as error:
        solution.check()
    assert "raise the damping" in error.value.cure
    solve(ConjugateGradient(steps=5, damping=3.0), matrix, v).check()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Neumann(steps=-1), "Neumann steps is -1"),
        (lambda: Neumann(alpha=0.0), "Neumann alpha is 0.0"),
        (lambda: Neumann(alpha=-0.1), "Neumann alpha is -0.1"),
        (lambda: Neumann(alpha=math.nan), "Neumann alpha is nan"),
        (lambda: Neumann(alpha="best"), "Neumann alpha is 'best'"),
        (lambda: ConjugateGradient(steps=0), "CG steps is 0"),
        (lambda: ConjugateGradient(damping=-1.0), "CG damping is -1.0"),
    ],
)
def test_bad_arguments_are_input_errors(make, message):
    with pytest.raises(InputError, match=message):
        make()
