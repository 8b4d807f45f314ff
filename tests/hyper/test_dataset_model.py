"""The dataset model: where it starts, and that its loss is the written-out formula."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from autodo.errors import InputError
from autodo.hyper import Augment, DatasetModel
from autodo.hyper.relabel import initial_label_logits

LOSSES = ("symmetric_kl", "kl", "cross_entropy")
LABELS = torch.tensor([0, 2, 1, 2, 0, 1])
INDEX = torch.tensor([4, 1, 1, 3])


def normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def moved(**options) -> DatasetModel:
    """A model in float64 whose rows have left their start."""
    data = DatasetModel(LABELS, num_classes=3, dtype=torch.float64, **options)
    for seed, table in enumerate(data.tables.values()):
        table.rows += normal(seed, *table.rows.shape)
    return data


def written_out(name: str, p: Tensor, q: Tensor) -> Tensor:
    return {
        "symmetric_kl": 0.5 * ((p - q) * (p.log() - q.log())).sum(-1),
        "kl": (q * (q / p).log()).sum(-1),
        "cross_entropy": -(q * p.log()).sum(-1),
    }[name]


@pytest.mark.parametrize("smoothing", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_soft_labels_start_as_exactly_the_smoothed_labels(classes, smoothing):
    labels = torch.arange(classes)
    data = DatasetModel(labels, num_classes=classes, smoothing=smoothing, dtype=torch.float64)
    expected = (1 - smoothing) * torch.eye(classes, dtype=torch.float64) + smoothing / classes
    torch.testing.assert_close(data.soft_labels(labels), expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_the_sign_printed_in_the_paper_has_no_logarithm(classes):
    """1 - C - C/alpha is negative; with the plus sign the formula is that of this module."""
    alpha = 0.1
    assert 1 - classes - classes / alpha < 0
    with pytest.raises(ValueError, match=r"math domain|positive"):
        math.log(1 - classes - classes / alpha)
    expected = math.log(1 - classes + classes / alpha) / 2
    rows = initial_label_logits(torch.tensor([1]), classes, alpha, torch.float64)
    assert rows[0, 1].item() == pytest.approx(expected, rel=1e-14)
    assert rows[0, 0].item() == pytest.approx(-expected, rel=1e-14)


@pytest.mark.parametrize("smoothing", [0.0, 1.0, -0.1, math.nan])
def test_smoothing_outside_its_range_is_an_input_error(smoothing):
    with pytest.raises(InputError, match="0 < smoothing < 1"):
        DatasetModel(LABELS, num_classes=3, smoothing=smoothing)


def test_every_weight_starts_at_one():
    data = DatasetModel(LABELS, num_classes=3, dtype=torch.float64)
    torch.testing.assert_close(data.weights(torch.arange(6)), torch.ones(6, dtype=torch.float64))


def test_weights_are_softplus_over_ln_two():
    data = moved()
    rows = data.table("weight").rows[INDEX, 0]
    torch.testing.assert_close(data.weights(INDEX), torch.log1p(rows.exp()) / math.log(2))


def test_without_reweighting_every_weight_is_one():
    data = moved(reweight=False)
    assert "weight" not in data.tables
    assert torch.equal(data.weights(INDEX), torch.ones(4))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reweight", [False, True])
def test_loss_is_the_weighted_mean_of_the_formula(name, reweight):
    data, logits = moved(loss=name, reweight=reweight), normal(7, 4, 3)
    w = torch.log1p(data.table("weight").rows[INDEX, 0].exp()) / math.log(2) if reweight else 1.0
    q = data.table("label").rows[INDEX].softmax(-1)
    expected = (w * written_out(name, logits.softmax(-1), q)).mean()
    torch.testing.assert_close(data.loss(logits, INDEX), expected, rtol=1e-7, atol=0)


@pytest.mark.parametrize("name", LOSSES)
def test_without_relabelling_the_loss_is_cross_entropy_with_the_given_labels(name):
    data, logits = moved(relabel=False, loss=name), normal(7, 4, 3)
    losses = torch.nn.functional.cross_entropy(logits, LABELS[INDEX], reduction="none")
    torch.testing.assert_close(data.loss(logits, INDEX), (data.weights(INDEX) * losses).mean())
    assert "label" not in data.tables
    assert data.training_loss.name == "cross_entropy"
    assert torch.equal(data.soft_labels(INDEX), torch.eye(3)[LABELS[INDEX]])


@pytest.mark.parametrize("relabel", [False, True])
def test_gradients_reach_the_logits_and_not_lambda(relabel):
    data, logits = moved(relabel=relabel, augment="affine"), normal(7, 4, 3).requires_grad_()
    before = {name: value.clone() for name, value in data.state_dict().items()}
    data.loss(logits, INDEX).backward()
    assert logits.grad is not None
    assert (logits.grad.abs().sum(-1) > 0).all()
    assert list(data.parameters()) == []
    assert not any(buffer.requires_grad for buffer in data.buffers())
    assert all(torch.equal(before[name], value) for name, value in data.state_dict().items())


@pytest.mark.parametrize("relabel", [False, True])
def test_logit_adjustment_is_added_inside_the_loss(relabel):
    adjustment, logits = normal(8, 3), normal(7, 4, 3)
    plain, adjusted = moved(relabel=relabel), moved(relabel=relabel, logit_adjustment=adjustment)
    loss = adjusted.loss(logits, INDEX)
    torch.testing.assert_close(loss, plain.loss(logits + adjustment, INDEX))
    assert not torch.isclose(loss, plain.loss(logits, INDEX))
    assert "logit_adjustment" in adjusted.state_dict()  # it moves with the model and is saved


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("relabel", [False, True])
def test_half_precision_logits_are_judged_in_float32(dtype, relabel):
    data = DatasetModel(LABELS, num_classes=3, relabel=relabel)
    logits = normal(7, 4, 3).to(dtype).requires_grad_()
    loss = data.loss(logits, INDEX)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, data.loss(logits.float(), INDEX))
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.dtype == dtype


def test_without_augmentation_images_pass_untouched():
    images = torch.rand(4, 1, 5, 5)
    assert DatasetModel(LABELS, num_classes=3, augment=None).augment(images, INDEX) is images


def test_every_image_is_augmented_by_its_own_row():
    augment = Augment("affine")
    data = DatasetModel(LABELS, num_classes=3, augment=augment, dtype=torch.float64)
    rows = data.table("augment").rows
    assert torch.equal(rows[0], augment.initial_row().double())
    rows += normal(9, *rows.shape)
    images = torch.rand(4, 1, 5, 5, dtype=torch.float64)

    def seeded() -> torch.Generator:
        return torch.Generator().manual_seed(0)

    expected = augment(images, rows[INDEX], seeded())
    assert torch.equal(data.augment(images, INDEX, seeded()), expected)
    assert not torch.equal(expected, images)


def test_shared_augmentation_has_one_row():
    data = DatasetModel(LABELS, num_classes=3, augment="affine", shared_augment=True)
    assert data.table("augment").rows.shape == (1, 14)
    assert data.augment(torch.rand(4, 1, 5, 5), INDEX).shape == (4, 1, 5, 5)


def test_the_optimizer_is_that_of_every_table():
    data = DatasetModel(LABELS, num_classes=3, augment="affine", optimizer="rmsprop")
    assert set(data.tables) == {"augment", "weight", "label"}
    assert {type(t.optimizer).__name__ for t in data.tables.values()} == {"RowRMSprop"}
    assert len(data) == 6


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 1, 3, 5]), "label 3 at index 2 is out of range"),
        (torch.tensor([0, -1]), "label -1 at index 1 is out of range"),
        (torch.tensor([0.0, 1.0]), "labels are torch.float32"),
        (torch.tensor([True, False]), "labels are torch.bool"),
        (torch.eye(3, dtype=torch.int64), r"labels have shape \(3, 3\)"),
        (torch.tensor([], dtype=torch.int64), r"labels have shape \(0,\)"),
    ],
)
def test_bad_labels_are_input_errors(labels, message):
    with pytest.raises(InputError, match=message):
        DatasetModel(labels, num_classes=3)


def test_an_unknown_loss_is_an_input_error():
    with pytest.raises(InputError, match="no loss is called 'mse'"):
        DatasetModel(LABELS, num_classes=3, loss="mse")


def test_the_mix_of_classes_counts_points_as_often_as_they_are_drawn():
    data = DatasetModel(torch.tensor([0, 0, 0, 1]), num_classes=2, smoothing=1e-6)
    torch.testing.assert_close(data.class_shares(), torch.tensor([0.75, 0.25]))
    each = torch.tensor([1 / 3, 1 / 3, 1 / 3, 1.0])
    torch.testing.assert_close(data.class_shares(4, each), torch.tensor([0.5, 0.5]))
