"""The closed form at the head against second-order autograd through a loss written out here."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import (
    LOSSES,
    SOFT_LOSSES,
    SOLVERS,
    HeadProblem,
    assert_near,
    problems,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autodo.errors import InputError
from autodo.implicit import (
    AutogradHypergradient,
    HeadHypergradient,
    Neumann,
    Solver,
    autograd_hypergradient,
    head_hypergradient,
)

GRADIENTS = ("weight_logits", "label_logits", "features")


def closed_form(problem: HeadProblem, solver: Solver) -> HeadHypergradient:
    hard = problem.loss == "hard"
    return head_hypergradient(
        problem.features,
        problem.head_weight,
        problem.head_bias,
        problem.weight_logits,
        problem.label_logits,
        problem.trusted_features,
        problem.trusted_labels,
        solver=solver,
        labels=problem.labels if hard else None,
        loss=None if hard else problem.loss,
        logit_adjustment=problem.logit_adjustment,
    )


def oracle(problem: HeadProblem, solver: Solver) -> AutogradHypergradient:
    theta = problem.head_weight.clone().requires_grad_()
    hyper = [getattr(problem, name).clone().requires_grad_() for name in GRADIENTS]
    weight_logits, label_logits, features = hyper
    train = problem.train_loss(features, theta, weight_logits, label_logits)
    return autograd_hypergradient(train, problem.trusted_loss(theta), [theta], hyper, solver=solver)


def assert_agree(problem: HeadProblem, solver: Solver, relative: float = 1e-10) -> None:
    result, expected = closed_form(problem, solver), oracle(problem, solver)
    for name, gradient in zip(GRADIENTS, expected.gradients, strict=True):
        assert_near(getattr(result, name), gradient, relative)
    assert_near(result.solution.u.flatten(), expected.solution.u, relative)
    torch.testing.assert_close(
        result.solution.residual, expected.solution.residual, rtol=1e-9, atol=1e-12
    )


@settings(max_examples=150, deadline=None)
@given(problem=problems, solver=st.sampled_from(SOLVERS))
def test_closed_form_equals_autograd(problem: HeadProblem, solver: Solver):
    assert_agree(problem, solver)


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_with_every_solver_equals_autograd(loss: str, solver: Solver):
    assert_agree(HeadProblem.random(loss=loss, adjusted=True, seed=3), solver)


@pytest.mark.parametrize("classes", [2, 100])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_single_point_equals_autograd(loss: str, classes: int):
    problem = HeadProblem.random(batch=1, trusted=1, classes=classes, loss=loss, seed=4)
    assert_agree(problem, Neumann(steps=5, alpha=0.1))


@settings(max_examples=40, deadline=None)
@given(problem=problems)
def test_first_order_quantities_equal_autograd(problem: HeadProblem):
    theta = problem.head_weight.clone().requires_grad_()
    train = problem.train_loss(problem.features, theta, problem.weight_logits, problem.label_logits)
    trusted = problem.trusted_loss(theta)
    result = closed_form(problem, Neumann())
    assert_near(result.train_gradient, torch.autograd.grad(train, theta)[0], 1e-10)
    assert_near(result.trusted_gradient, torch.autograd.grad(trusted, theta)[0], 1e-10)
    assert_near(result.trusted_loss, trusted.detach(), 1e-12)


@pytest.mark.parametrize("solver", SOLVERS, ids=str)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_float32_stays_close_to_the_float64_oracle(classes: int, loss: str, solver: Solver):
    problem = HeadProblem.random(classes=classes, batch=8, width=6, loss=loss, seed=5)
    result, expected = closed_form(problem.to(torch.float32), solver), oracle(problem, solver)
    for name, gradient in zip(GRADIENTS, expected.gradients, strict=True):
        assert getattr(result, name).dtype == torch.float32
        assert_near(getattr(result, name), gradient, 1e-5)


def test_hard_labels_have_no_label_gradient_and_ignore_the_soft_ones():
    problem = HeadProblem.random(loss="hard")
    result = closed_form(problem, Neumann())
    assert torch.equal(result.label_logits, torch.zeros_like(problem.label_logits))
    other = closed_form(replace(problem, label_logits=-problem.label_logits), Neumann())
    assert torch.equal(result.weight_logits, other.weight_logits)
    assert torch.equal(result.features, other.features)


@pytest.mark.parametrize(("symmetric", "name"), [(True, "symmetric_kl"), (False, "kl")])
def test_symmetric_chooses_the_loss_and_a_name_overrides_it(symmetric: bool, name: str):
    problem = HeadProblem.random(loss=name)

    def label_gradient(symmetric: bool, loss: str | None) -> Tensor:
        return head_hypergradient(
            problem.features,
            problem.head_weight,
            problem.head_bias,
            problem.weight_logits,
            problem.label_logits,
            problem.trusted_features,
            problem.trusted_labels,
            symmetric=symmetric,
            loss=loss,
        ).label_logits

    expected = oracle(problem, Neumann()).gradients[1]
    assert_near(label_gradient(symmetric, None), expected, 1e-10)
    assert_near(label_gradient(not symmetric, name), expected, 1e-10)


@pytest.mark.parametrize("loss", SOFT_LOSSES)
def test_rows_are_independent_given_u(loss: str):
    """A point's gradient changes with its own row; with u fixed by Identity, no other's does."""
    problem = HeadProblem.random(loss=loss, seed=6)
    moved = problem.label_logits.clone()
    moved[2] += torch.linspace(-1, 1, moved.shape[1], dtype=moved.dtype)
    before = closed_form(problem, SOLVERS[-1])
    after = closed_form(replace(problem, label_logits=moved), SOLVERS[-1])
    others = torch.arange(len(moved)) != 2
    for name in GRADIENTS:
        torch.testing.assert_close(
            getattr(before, name)[others], getattr(after, name)[others], rtol=1e-12, atol=0
        )
        assert not torch.allclose(getattr(before, name)[2], getattr(after, name)[2])


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 4, 1)])
def test_features_of_another_width_are_an_input_error(shape: tuple[int, ...]):
    problem = HeadProblem.random(width=4)
    wrong = replace(problem, features=torch.zeros(shape, dtype=torch.float64))
    with pytest.raises(InputError, match=r"the head takes \(batch, 4\)") as error:
        closed_form(wrong, Neumann())
    assert str(shape) in error.value.fact
