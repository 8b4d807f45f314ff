"""The fast fit of many heads against slow oracles."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from autodo.auditing import heads as module
from autodo.auditing.heads import BIAS_L2, Heads, fit_heads, outside, split


def problem(count: int = 120, width: int = 6, classes: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Correlated features, soft labels and the folds of three heads."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(width, width, generator=generator)
    features = torch.randn(count, width, generator=generator) @ mix
    features = (features - features.mean(0)) / features.std(0)
    labels = torch.randn(count, classes, generator=generator).mul(2).softmax(-1)
    fold = split(count, 3, generator, labels.argmax(-1))
    return features, labels, fold


def at_head(
    heads: Heads, features: Tensor, labels: Tensor, seen: Tensor, l2: float, shift: Tensor
) -> tuple[float, tuple[Tensor, Tensor]]:
    """The objective that the module states, and its gradients by autograd, in float64."""
    weight = heads.weight.double().requires_grad_()
    bias = heads.bias.double().requires_grad_()
    total = l2 / 2 * weight.square().sum() + BIAS_L2 / 2 * bias.square().sum()
    for k in range(len(weight)):
        logits = features.double() @ weight[k].T + bias[k] + shift
        total = (
            total + (seen[:, k] * F.cross_entropy(logits, labels.double(), reduction="none")).sum()
        )
    return total.item(), torch.autograd.grad(total, (weight, bias))


def gradients(*args: Any) -> tuple[Tensor, Tensor]:
    return at_head(*args)[1]


@pytest.mark.parametrize("l2", [0.1, 10.0])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_gradient_of_the_objective_vanishes(l2: float, classes: int) -> None:
    features, labels, fold = problem(classes=classes)
    seen, shift = outside(fold, 3), torch.linspace(-1, 1, classes)
    heads = fit_heads(features, labels, seen, l2=l2, shift=shift, tolerance=1e-3)
    for gradient in gradients(heads, features, labels, seen, l2, shift):
        assert gradient.abs().max() < 0.02  # of 120 points; 0.003 was measured


class Case(NamedTuple):
    """A fit whose answer scipy finds as well, head by head in float64."""

    count: int = 120
    width: int = 6
    classes: int = 4
    heads: int = 3
    l2: float = 1.0
    shifted: bool = False
    started: bool = False
    unseen: int = 0
    """Points that no head sees."""


CASES = {
    "plain": Case(),
    "two classes": Case(classes=2),
    "one head": Case(heads=1),
    "fewer points than features": Case(count=20, width=40),
    "shift": Case(shifted=True),
    "start": Case(started=True),
    "points that no head sees": Case(unseen=30),
    "tiny folds": Case(count=5, heads=5, classes=2),
    "much L2": Case(l2=1e4),
    "little L2": Case(l2=1e-2),
    "everything": Case(
        count=40, width=50, classes=2, heads=1, l2=0.1, shifted=True, started=True, unseen=7
    ),
}


def minimum(
    features: Tensor, labels: Tensor, mask: Tensor, l2: float, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """Weight (C, D) and bias (C,) of the head that sees what is not 0 in mask (N,), by scipy."""
    shape = labels.shape[1], features.shape[1] + 1

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.from_numpy(x).view(1, *shape)
        head = Heads(at[..., :-1], at[..., -1])
        value, (weight, bias) = at_head(head, features, labels, mask[:, None], l2, shift)
        return value, torch.cat([weight, bias[..., None]], -1).flatten().numpy()

    options = {"gtol": 1e-8, "ftol": 0.0, "maxiter": 1000, "maxcor": 50}
    first = np.zeros(shape[0] * shape[1])
    found = minimize(objective, first, jac=True, method="L-BFGS-B", options=options)
    at = torch.from_numpy(found.x).view(shape)
    return at[:, :-1], at[:, -1]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_minimum_is_that_of_scipy_head_by_head(case: Case) -> None:
    features, labels, _ = problem(case.count, case.width, case.classes)
    features, labels = features.double(), labels.double()
    labels /= labels.sum(-1, keepdim=True)  # which they were to float32 only
    fold = torch.arange(case.count) % max(2, case.heads)
    seen = outside(fold, case.heads).double()
    seen[: case.unseen] = 0
    shift = torch.linspace(-1, 1, case.classes).double() * case.shifted
    generator = torch.Generator().manual_seed(1)
    start = Heads(
        torch.randn(case.heads, case.classes, case.width, generator=generator).double(),
        torch.randn(case.heads, case.classes, generator=generator).double(),
    )
    heads = fit_heads(
        features, labels, seen, l2=case.l2, steps=2000, tolerance=1e-9,
        shift=shift if case.shifted else None, start=start if case.started else None,
    )  # fmt: skip
    for k in range(case.heads):
        weight, bias = minimum(features, labels, seen[:, k], case.l2, shift)
        torch.testing.assert_close(heads.weight[k], weight, atol=1e-5, rtol=0)
        torch.testing.assert_close(heads.bias[k], bias, atol=1e-5, rtol=0)


@pytest.mark.parametrize("l2", [1e4, 1.0, 1e-2])
def test_points_that_heads_part_do_not_send_them_astray(l2: float) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 4
    features = torch.randn(200, 30, generator=generator)
    features[:, :4] += 8 * F.one_hot(labels, 4)
    features = (features - features.mean(0)) / features.std(0)
    seen, soft = outside(torch.arange(200) // 4 % 5, 5), F.one_hot(labels, 4).float()
    far = Heads(torch.full((5, 4, 30), 9.0), torch.full((5, 4), -9.0))
    for start in (None, far):
        heads = fit_heads(features, soft, seen, l2=l2, start=start, tolerance=1e-3, steps=500)
        for gradient in gradients(heads, features, soft, seen, l2, torch.zeros(4)):
            assert gradient.abs().max() < 0.03  # of 160 points, 0.007 was measured


def test_the_same_fit_twice_is_the_same_bit_for_bit() -> None:
    features, labels, fold = problem()
    one, other = (fit_heads(features, labels, outside(fold, 3), l2=0.1) for _ in range(2))
    assert torch.equal(one.weight, other.weight)
    assert torch.equal(one.bias, other.bias)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_heads_of_points_on_the_gpu_are_those_of_the_host() -> None:
    features, labels, fold = problem()
    seen, shift = outside(fold, 3), torch.linspace(-1, 1, 4)
    here = fit_heads(features, labels, seen, l2=1.0, shift=shift, tolerance=1e-3)
    moved = [x.cuda() for x in (features, labels, seen)]
    there = fit_heads(*moved, l2=1.0, shift=shift.cuda(), tolerance=1e-3)
    again = fit_heads(*moved, l2=1.0, shift=shift.cuda(), start=there, tolerance=1e-3)
    for found in (there, again):
        assert found.weight.is_cuda
        assert found.bias.is_cuda
        assert torch.allclose(found.weight.cpu(), here.weight, atol=2e-3)
        assert torch.allclose(found.bias.cpu(), here.bias, atol=2e-3)


def test_it_is_the_logistic_regression_of_scikit_learn() -> None:
    features, labels, _ = problem(count=400)
    hard = labels.argmax(-1)
    heads = fit_heads(
        features, F.one_hot(hard, 4).float(), torch.ones(400, 1), l2=5.0, tolerance=1e-3
    )
    theirs = LogisticRegression(C=1 / 5, tol=1e-8, max_iter=1000).fit(features, hard)
    ours = heads.belief(features, torch.zeros(400, dtype=torch.int64)).exp()
    expected = torch.from_numpy(theirs.predict_proba(features.numpy())).float()
    # Theirs leaves the bias free, ours draws it a little towards zero.
    torch.testing.assert_close(ours, expected, atol=2e-3, rtol=0)


def test_what_a_head_has_not_seen_does_not_touch_it() -> None:
    features, labels, fold = problem()
    seen = outside(fold, 3)
    heads = fit_heads(features, labels, seen, l2=1.0)
    labels[fold == 1] = labels[fold == 1].flip(-1)
    others = fit_heads(features, labels, seen, l2=1.0)
    # Not to the last bit: the heads go on until the last has arrived.
    torch.testing.assert_close(heads.weight[1], others.weight[1], atol=0.02, rtol=0)
    assert (heads.weight[0] - others.weight[0]).abs().max() > 0.2


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels, fold = problem()
    whole = fit_heads(features, labels, outside(fold, 3), l2=1.0)
    monkeypatch.setattr(module, "NUMBERS", 7 * 3 * 4)
    parts = fit_heads(features, labels, outside(fold, 3), l2=1.0)
    torch.testing.assert_close(whole.weight, parts.weight, atol=1e-3, rtol=0)


def test_a_start_at_the_answer_stays_there() -> None:
    features, labels, fold = problem()
    seen = outside(fold, 3)
    heads = fit_heads(features, labels, seen, l2=1.0, tolerance=1e-3)
    again = fit_heads(features, labels, seen, l2=1.0, tolerance=1e-2, start=heads)
    torch.testing.assert_close(again.weight, heads.weight, atol=1e-4, rtol=1e-4)


def test_a_class_that_a_head_never_sees_stays_finite_and_unlikely() -> None:
    features, labels, _ = problem()
    labels[:, 3] = 0
    labels = labels / labels.sum(-1, keepdim=True)
    heads = fit_heads(features, labels, torch.ones(len(labels), 1), l2=1.0)
    belief = heads.belief(features, torch.zeros(len(labels), dtype=torch.int64))
    assert belief.isfinite().all()
    assert belief[:, 3].exp().max() < 0.1


def test_an_unseen_point_is_judged_by_the_mean_of_all_heads() -> None:
    features, labels, fold = problem()
    heads = fit_heads(features, labels, outside(fold, 3), l2=1.0)
    logits = torch.einsum("nd,kcd->knc", features, heads.weight) + heads.bias[:, None]
    nowhere = heads.belief(features, torch.full_like(fold, -1))
    torch.testing.assert_close(nowhere, F.log_softmax(logits.mean(0), -1))
    torch.testing.assert_close(
        heads.belief(features, fold),
        F.log_softmax(logits[fold, torch.arange(len(fold))], -1),
    )


def test_beliefs_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = Heads(torch.randn(3, 4, 5), torch.randn(3, 4))
    features, fold = torch.randn(50, 5), torch.arange(50) % 4 - 1
    whole = heads.belief(features, fold)
    monkeypatch.setattr("autodo.auditing.heads.MOST", 12 * 7)
    torch.testing.assert_close(heads.belief(features, fold), whole)
