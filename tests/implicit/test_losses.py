"""The losses and their closed-form derivatives against autograd, and at extreme logits."""

from __future__ import annotations

import math

import pytest
import torch
from cases import CLASSES, SOFT_LOSSES, assert_near, point_losses, seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autodo.errors import InputError
from autodo.losses import LOSSES, CrossEntropy, get_loss

log_softmax = torch.nn.functional.log_softmax

shapes = st.tuples(st.sampled_from((1, 2, 4)), st.sampled_from(CLASSES))
seeds = st.integers(0, 2**32 - 1)
names = st.sampled_from(SOFT_LOSSES)


def draw(shape: tuple[int, int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits z, label logits S and a direction, each (B, C)."""
    generator = seeded(seed)
    z, s, a = torch.randn(3, *shape, generator=generator, dtype=torch.float64)
    return 2 * z, 2 * s, a


def written_out(name: str, z: Tensor, s: Tensor) -> Tensor:
    return point_losses(name, z, s, labels=torch.zeros(len(z), dtype=torch.int64))


def written_out_residual(name: str, z: Tensor, s: Tensor) -> Tensor:
    """dl/dz by autograd, itself differentiable."""
    z = z if z.requires_grad else z.clone().requires_grad_()
    return torch.autograd.grad(written_out(name, z, s).sum(), z, create_graph=True)[0]


@settings(max_examples=60, deadline=None)
@given(name=names, shape=shapes, seed=seeds)
def test_value_and_residual_equal_autograd(name, shape, seed):
    z, s, _ = draw(shape, seed)
    loss, log_p, log_q = get_loss(name), log_softmax(z, -1), log_softmax(s, -1)
    assert_near(loss.value(log_p, log_q), written_out(name, z, s), 1e-11)
    assert_near(loss.residual(log_p, log_q), written_out_residual(name, z, s).detach(), 1e-11)


@settings(max_examples=60, deadline=None)
@given(name=names, shape=shapes, seed=seeds)
def test_curvature_is_the_jacobian_of_the_residual(name, shape, seed):
    z, s, u = draw(shape, seed)
    jacobian = torch.autograd.functional.jacobian(
        lambda z: written_out_residual(name, z, s).sum(0), z
    )  # (C, B, C): points do not mix, so summing over them separates them
    expected = torch.einsum("cbd,bd->bc", jacobian, u)
    curvature = get_loss(name).curvature(u, log_softmax(z, -1), log_softmax(s, -1))
    assert_near(curvature, expected, 1e-10)


@settings(max_examples=60, deadline=None)
@given(name=names, shape=shapes, seed=seeds)
def test_label_pullback_is_the_gradient_through_the_soft_label(name, shape, seed):
    z, s, a = draw(shape, seed)
    s.requires_grad_()
    residual = written_out_residual(name, z, s)
    (expected,) = torch.autograd.grad((residual * a).sum(), s)
    log_q = log_softmax(s.detach(), -1)
    assert_near(get_loss(name).label_pullback(a, log_softmax(z, -1), log_q), expected, 1e-10)


@pytest.mark.parametrize("name", SOFT_LOSSES)
def test_residual_and_curvature_vanish_along_the_shift_of_all_logits(name):
    z, s, a = draw((4, 10), 0)
    loss, log_p, log_q = get_loss(name), log_softmax(z, -1), log_softmax(s, -1)
    assert loss.residual(log_p, log_q).sum(-1).abs().max() < 1e-14
    assert loss.curvature(torch.ones_like(a), log_p, log_q).abs().max() < 1e-14
    assert loss.label_pullback(torch.ones_like(a), log_p, log_q).abs().max() < 1e-14


@pytest.mark.parametrize("name", ["symmetric_kl", "kl"])
def test_equal_beliefs_have_no_loss_and_no_residual(name):
    z, _, _ = draw((4, 10), 1)
    log_p = log_softmax(z, -1)
    assert torch.equal(get_loss(name).value(log_p, log_p), torch.zeros(4, dtype=torch.float64))
    assert torch.equal(get_loss(name).residual(log_p, log_p), torch.zeros_like(z))


EXTREMES = {
    "right": ([1e4, -1e4, 0.0], [1e4, -1e4, 0.0]),
    "wrong": ([1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]),
    "sure network": ([1e4, -1e4, -1e4], [1.0, 0.0, -1.0]),
    "sure label": ([1.0, 0.0, -1.0], [-1e4, -1e4, 1e4]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", EXTREMES)
@pytest.mark.parametrize("name", SOFT_LOSSES)
def test_logits_of_ten_thousand_stay_finite_and_right(name, case, dtype):
    z, s = (torch.tensor([x], dtype=dtype) for x in EXTREMES[case])
    a = torch.tensor([[0.5, -1.0, 2.0]], dtype=dtype)
    loss, log_p, log_q = get_loss(name), log_softmax(z, -1), log_softmax(s, -1)
    for result in (
        loss.value(log_p, log_q),
        loss.residual(log_p, log_q),
        loss.curvature(a, log_p, log_q),
        loss.label_pullback(a, log_p, log_q),
    ):
        assert result.isfinite().all()
    # Where p and q are one-hot, their difference in logits alone makes the loss.
    if case == "wrong":
        expected = 2e4
        torch.testing.assert_close(
            loss.value(log_p, log_q), torch.tensor([expected], dtype=dtype), rtol=1e-6, atol=0
        )
    if case == "right":
        assert loss.value(log_p, log_q).item() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["kl", "cross_entropy"])
def test_exactly_hard_labels_make_kl_the_cross_entropy(name, dtype):
    z = torch.tensor([[2.0, -1.0, 0.5], [1e4, -1e4, 0.0]], dtype=dtype, requires_grad=True)
    labels = torch.tensor([2, 1])
    log_q = torch.nn.functional.one_hot(labels, 3).to(dtype).log()  # holds -inf
    loss, log_p = get_loss(name), log_softmax(z, -1)
    expected = torch.nn.functional.cross_entropy(z, labels, reduction="none")
    torch.testing.assert_close(loss.value(log_p, log_q), expected)
    (gradient,) = torch.autograd.grad(loss.value(log_p, log_q).sum(), z)
    torch.testing.assert_close(gradient, loss.residual(log_p, log_q))
    assert loss.curvature(torch.ones_like(z), log_p, log_q).isfinite().all()


def test_cross_entropy_is_kl_plus_the_entropy_of_the_label():
    z, s, _ = draw((4, 3), 2)
    log_p, log_q = log_softmax(z, -1), log_softmax(s, -1)
    entropy = torch.distributions.Categorical(logits=s).entropy()
    difference = CrossEntropy().value(log_p, log_q) - get_loss("kl").value(log_p, log_q)
    torch.testing.assert_close(difference, entropy)


def test_symmetric_kl_is_symmetric_and_the_mean_of_both_kls():
    z, s, _ = draw((4, 3), 3)
    log_p, log_q = log_softmax(z, -1), log_softmax(s, -1)
    kl, symmetric = get_loss("kl"), get_loss("symmetric_kl")
    both = (kl.value(log_p, log_q) + kl.value(log_q, log_p)) / 2
    torch.testing.assert_close(symmetric.value(log_p, log_q), both)
    torch.testing.assert_close(symmetric.value(log_q, log_p), both)


def test_known_values():
    half, quarter = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    kl = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert get_loss("kl").value(quarter, half).item() == pytest.approx(kl)
    symmetric = 0.5 * 0.25 * math.log(3)
    assert get_loss("symmetric_kl").value(quarter, half).item() == pytest.approx(symmetric)


def test_an_unknown_loss_is_an_input_error_that_lists_the_known():
    assert set(LOSSES) == set(SOFT_LOSSES)
    with pytest.raises(InputError, match=r"no loss is called 'mse'.*symmetric_kl, kl, cross_ent"):
        get_loss("mse")
