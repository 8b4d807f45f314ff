"""The augmentation sub-model: what it draws, what it learns from, and that it repeats."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from autodo.errors import InputError
from autodo.hyper.augment import KINDS, OPERATIONS, Augment, binary_gate
from autodo.hyper.colour import adjust_hue
from autodo.hyper.warp import affine_matrix, warp

CENTRES = {operation.name: operation.centre for operation in OPERATIONS}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_images(batch: int = 4, channels: int = 3, size: tuple[int, int] = (6, 9)) -> Tensor:
    shape = (batch, channels, *size)
    # Away from 0 and 1, where the colour operations clamp.
    return 0.3 + 0.4 * torch.rand(shape, generator=seeded(9), dtype=torch.float64)


def random_rows(augment: Augment, batch: int, seed: int = 1) -> Tensor:
    shape = (batch, 2 * len(augment.operations))
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


def identity_values(augment: Augment, batch: int) -> Tensor:
    centres = [CENTRES[name] for name in augment.operations]
    return torch.tensor(centres, dtype=torch.float64).expand(batch, -1)


def rows_with(augment: Augment, *, probability: float, magnitude_logit: float = 0.0) -> Tensor:
    """One row (2A,) with the same gate and magnitude for every operation."""
    count = len(augment.operations)
    gate = torch.logit(torch.tensor(probability, dtype=torch.float64)).expand(count)
    return torch.cat((torch.full((count,), magnitude_logit, dtype=torch.float64), gate))


def test_operations_are_those_of_the_kind_in_a_fixed_order():
    affine = ("rotation", "scale_x", "scale_y", "translate_x", "translate_y", "shear_x", "shear_y")
    colour = ("brightness", "contrast", "saturation", "hue")
    assert Augment("affine").operations == affine
    assert Augment("colour").operations == colour
    assert Augment("affine+colour").operations == affine + colour


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "color"},
        {"kind": "affine+"},
        {"padding_mode": "wrap"},
        {"magnitude": 0.0},
        {"temperature": -1.0},
        {"magnitude": float("nan")},
    ],
)
def test_unusable_settings_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Augment(**wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_the_initial_row_has_magnitude_zero_and_gates_of_a_quarter(kind):
    augment = Augment(kind)
    magnitude, gate = augment.initial_row().chunk(2)
    assert torch.equal(magnitude, torch.zeros(len(augment.operations)))
    torch.testing.assert_close(torch.sigmoid(gate), torch.full_like(gate, 0.25))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(8, 8), (7, 7), (6, 9), (5, 4)])
@pytest.mark.parametrize("channels", [1, 3])
def test_identity_values_give_back_the_images(kind, size, channels):
    augment, images = Augment(kind), random_images(2, channels, size)
    unchanged = augment.apply(images, identity_values(augment, 2))
    torch.testing.assert_close(unchanged, images, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_closed_gates_draw_exactly_the_identity(kind):
    augment = Augment(kind)
    values = augment.sample(rows_with(augment, probability=1e-12), 50, seeded())
    assert torch.equal(values, identity_values(augment, 50))


@pytest.mark.parametrize("probability", [0.05, 0.25, 0.8])
@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_gates_open_as_often_as_the_sigmoid_of_their_logit(probability, temperature):
    augment, draws = Augment("affine+colour", temperature=temperature), 20_000
    values = augment.sample(rows_with(augment, probability=probability), draws, seeded())
    opened = (values != identity_values(augment, draws)).double().mean(dim=0)
    deviation = (probability * (1 - probability) / draws) ** 0.5
    assert ((opened - probability).abs() < 4 * deviation).all()


def test_values_of_open_gates_are_normal_about_the_centre():
    augment, draws = Augment("affine", magnitude=4.0), 20_000
    rows = rows_with(augment, probability=1 - 1e-12, magnitude_logit=-1.0)
    values = augment.sample(rows, draws, seeded())
    expected = torch.tensor([30, 0.5, 0.5, 0.45, 0.45, 0.3, 0.3], dtype=torch.float64)
    expected *= 0.4 * torch.sigmoid(torch.tensor(-1.0, dtype=torch.float64))
    assert ((values.std(dim=0) / expected - 1).abs() < 0.03).all()
    centred = (values.mean(dim=0) - identity_values(augment, 1)[0]) / expected
    assert (centred.abs() < 4 * draws**-0.5).all()


def test_gates_are_hard_forward_and_soft_backward():
    logits = torch.linspace(-3, 3, 50, dtype=torch.float64, requires_grad=True)
    uniform = torch.rand(50, generator=seeded(), dtype=torch.float64)
    for temperature in (0.5, 1.0):
        gate = binary_gate(logits, uniform, temperature)
        assert ((gate == 0) | (gate == 1)).all()
        soft = torch.sigmoid((logits + torch.logit(uniform)) / temperature)
        (through_hard,) = torch.autograd.grad(gate.sum(), logits)
        (through_soft,) = torch.autograd.grad(soft.sum(), logits)
        torch.testing.assert_close(through_hard, through_soft)
        assert (through_hard > 0).all()


def test_gates_stay_finite_at_the_ends_of_the_uniform_numbers():
    logits = torch.zeros(2, requires_grad=True)
    gate = binary_gate(logits, torch.tensor([0.0, 1.0]))
    gate.sum().backward()
    assert gate.tolist() == [0.0, 1.0]
    assert logits.grad.isfinite().all()


def test_gradient_of_the_values_to_the_magnitudes_agrees_with_finite_differences():
    augment = Augment("affine+colour")
    magnitude, gate = random_rows(augment, 3).chunk(2, dim=-1)

    def sampled(magnitude: Tensor) -> Tensor:
        return augment.sample(torch.cat((magnitude, gate + 1), dim=-1), 3, seeded())

    assert torch.autograd.gradcheck(sampled, (magnitude.clone().requires_grad_(),))


def test_gradient_of_the_values_to_the_gates_is_nonzero_whether_open_or_closed():
    augment = Augment("affine+colour")
    rows = random_rows(augment, 8).requires_grad_()
    values = augment.sample(rows, 8, seeded())
    values.sum().backward()
    to_magnitudes, to_gates = rows.grad.chunk(2, dim=-1)
    closed = values == identity_values(augment, 8)
    assert closed.any()
    assert not closed.all()
    assert (to_gates != 0).all()
    assert (to_magnitudes[closed] == 0).all()
    assert (to_magnitudes[~closed] != 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_the_images_agree_with_finite_differences(kind):
    # Open gates and modest values: no sample on a pixel, no pixel at the clamp (zero padding is at
    # the clamp of brightness, so the border is repeated).
    augment = Augment(kind, magnitude=2.0, padding_mode="border")
    values = augment.sample(rows_with(augment, probability=0.999), 2, seeded(2))
    values.requires_grad_()
    images = random_images(2, 3, (4, 5)).requires_grad_()
    assert torch.autograd.gradcheck(augment.apply, (images, values), eps=1e-7, atol=1e-5)


def test_gradient_of_the_images_to_the_magnitude_rows_agrees_with_finite_differences():
    augment, images = Augment("affine", magnitude=2.0), random_images(2, 3, (4, 5))
    magnitude, gate = random_rows(augment, 2).chunk(2, dim=-1)

    def augmented(magnitude: Tensor) -> Tensor:
        return augment(images, torch.cat((magnitude, gate + 2), dim=-1), seeded(4))

    magnitude = magnitude.clone().requires_grad_()
    assert torch.autograd.gradcheck(augmented, (magnitude,), eps=1e-7, atol=1e-5)


def test_all_geometric_operations_are_one_warp_followed_by_the_colours():
    augment, images = Augment("affine+colour"), random_images()
    values = identity_values(augment, 4).clone()
    values[:, 0] = torch.tensor([10.0, -20.0, 30.0, 0.0])
    values[:, 3] = 0.1
    values[:, -1] = 0.4
    named = dict(zip(augment.operations, values.unbind(-1), strict=True))
    matrix = affine_matrix((6, 9), **{op.name: named[op.name] for op in OPERATIONS[:7]})
    expected = adjust_hue(warp(images, matrix), named["hue"])
    torch.testing.assert_close(augment.apply(images, values), expected)


def test_colour_alone_does_not_resample():
    augment, images = Augment("colour"), random_images().float()
    unchanged = augment.apply(images, identity_values(augment, 4).float())
    assert torch.equal(unchanged, images)


@pytest.mark.parametrize("kind", KINDS)
def test_a_shared_row_equals_equal_rows(kind):
    augment, images = Augment(kind), random_images()
    row = random_rows(augment, 1)
    per_point = augment(images, row.expand(4, -1), seeded(3))
    assert torch.equal(augment(images, row[0], seeded(3)), per_point)
    assert torch.equal(augment(images, row, seeded(3)), per_point)


def test_images_of_a_shared_row_draw_their_own_values():
    augment = Augment()
    values = augment.sample(rows_with(augment, probability=0.999), 4, seeded())
    assert len(values[:, 0].unique()) == 4


def test_the_same_seed_gives_the_same_images_and_another_seed_others():
    augment, images = Augment("affine+colour"), random_images()
    rows = random_rows(augment, 4)
    first, again, other = (augment(images, rows, seeded(s)) for s in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_without_a_generator_the_global_seed_decides():
    augment, rows = Augment(), random_rows(Augment(), 4)
    torch.manual_seed(3)
    first = augment.sample(rows, 4)
    torch.manual_seed(3)
    assert torch.equal(augment.sample(rows, 4), first)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("batch", "channels"), [(1, 3), (1, 1), (3, 1), (0, 3)])
def test_small_and_single_channel_batches_learn_too(kind, batch, channels):
    augment = Augment(kind)
    rows = random_rows(augment, batch).float().requires_grad_()
    images = random_images(batch, channels).float()
    augmented = augment(images, rows, seeded())
    assert augmented.shape == images.shape
    assert augmented.dtype == torch.float32
    augmented.square().sum().backward()
    assert rows.grad.isfinite().all()


def test_extreme_rows_stay_finite_and_within_bounds():
    augment = Augment("affine+colour", magnitude=30.0)
    rows = rows_with(augment, probability=0.999, magnitude_logit=20.0).requires_grad_()
    values = augment.sample(rows, 500, seeded())
    named = dict(zip(augment.operations, values.unbind(-1), strict=True))
    assert min(named["scale_x"].min(), named["scale_y"].min()) > 0.1 - 1e-12
    assert named["shear_x"].abs().max() <= 1
    assert named["contrast"].min() >= 0
    augmented = augment.apply(random_images(500), values)
    augmented.square().sum().backward()
    assert augmented.isfinite().all()
    assert rows.grad.isfinite().all()
    assert augmented.min() >= -1e-12
    assert augmented.max() <= 1 + 1e-12


def test_images_keep_their_dtype_and_are_computed_in_float32():
    augment, images = Augment("affine+colour"), random_images().to(torch.bfloat16)
    rows = random_rows(augment, 4).float()
    low = augment(images, rows, seeded())
    assert low.dtype == torch.bfloat16
    assert torch.equal(low, augment(images.float(), rows, seeded()).to(torch.bfloat16))


def test_autocast_changes_nothing():
    augment, images = Augment("affine+colour"), random_images().float()
    rows = random_rows(augment, 4).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = augment(images, rows, seeded())
    assert torch.equal(cast, augment(images, rows, seeded()))


def test_applying_compiles_to_one_graph():
    augment, images = Augment("affine+colour"), random_images()
    rows = random_rows(augment, 4).requires_grad_()
    compiled = torch.compile(augment.apply, backend="aot_eager", fullgraph=True)
    values = augment.sample(rows, 4, seeded())
    torch.testing.assert_close(compiled(images, values), augment.apply(images, values))
    compiled(images, values).sum().backward()
    assert rows.grad.isfinite().all()


def test_the_description_is_the_deviation_and_the_frequency_in_units_of_the_operation():
    augment = Augment("affine+colour")
    described = augment.describe(augment.initial_row().expand(5, -1))
    assert len(described) == 2 * len(augment.operations)
    assert all(column.shape == (5,) for column in described.values())
    for operation in OPERATIONS:
        magnitude = described[f"{operation.name}_magnitude"]
        torch.testing.assert_close(magnitude, torch.full((5,), operation.range / 4))
        probability = described[f"{operation.name}_probability"]
        torch.testing.assert_close(probability, torch.full((5,), 0.25))


@pytest.mark.parametrize(
    ("images", "rows"),
    [
        (torch.rand(4, 3, 5, 5), torch.zeros(4, 13)),
        (torch.rand(4, 3, 5, 5), torch.zeros(3, 14)),
        (torch.rand(3, 5, 5), torch.zeros(14)),
        (torch.zeros(4, 3, 5, 5, dtype=torch.uint8), torch.zeros(14)),
    ],
    ids=["columns", "rows", "no batch", "bytes"],
)
def test_images_and_rows_that_do_not_fit_are_refused(images, rows):
    with pytest.raises(InputError):
        Augment("affine")(images, rows)
