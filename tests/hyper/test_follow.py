"""Labels that follow a network, and settle."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from autodo.hyper import DatasetModel
from autodo.hyper.follow import follow, note_doubt, settle


def normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def noise_of(rate: float, classes: int) -> Tensor:
    return (1 - rate) * torch.eye(classes) + rate / classes


@pytest.mark.parametrize("storage", ["float32", "bfloat16", "top-k"])
def test_labels_follow_a_belief_by_the_rule(storage):
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    data = DatasetModel(labels, num_classes=5, label_storage=storage, label_top=5)
    index, logits = torch.tensor([4, 0, 2]), normal(3, 3, 5).float()
    before, transition = data.soft_labels(torch.arange(6)), noise_of(0.3, 5)
    data.transition.copy_(transition)
    follow(data, index, logits, torch.tensor(0.25))
    target = logits.log_softmax(-1) + transition.log()[:, labels[index]].T
    expected = (0.75 * before[index].log() + 0.25 * target).softmax(-1)
    after = data.soft_labels(torch.arange(6))
    near = {"rtol": 0, "atol": 2e-2} if storage == "bfloat16" else {}
    torch.testing.assert_close(after[index], expected, **near)
    assert torch.equal(after[[1, 3, 5]], before[[1, 3, 5]])


@pytest.mark.parametrize("storage", ["float32", "bfloat16", "top-k"])
def test_labels_without_noise_follow_nothing_to_the_bit(storage):
    data = DatasetModel(torch.arange(6) % 3, num_classes=3, label_storage=storage, label_top=2)
    every = torch.arange(6)
    before = data.label_logits(every)
    follow(data, every, 9 * normal(3, 6, 3), 0.5)
    assert torch.equal(data.label_logits(every), before)


def test_the_mix_of_classes_belongs_to_the_belief_that_is_followed():
    """The network is trained with adjusted logits: these say what it believes of the mix."""
    shift = torch.tensor([1.0, -1.0])
    data = DatasetModel(torch.tensor([0]), num_classes=2, logit_adjustment=shift)
    other = DatasetModel(torch.tensor([0]), num_classes=2)
    logits = torch.tensor([[0.3, 0.9]])
    for model, given in ((data, logits), (other, logits + shift)):
        model.transition.copy_(noise_of(0.2, 2))
        follow(model, torch.tensor([0]), given, 0.7)
    torch.testing.assert_close(
        data.soft_labels(torch.tensor([0])), other.soft_labels(torch.tensor([0]))
    )


@pytest.mark.parametrize("storage", ["float32", "bfloat16", "top-k"])
def test_labels_settle_at_the_doubt_that_was_noted(storage):
    labels = torch.arange(40) % 5
    data = DatasetModel(labels, num_classes=5, label_storage=storage, label_top=5)
    every = torch.arange(40)
    data.transition.copy_(noise_of(0.3, 5))

    def doubts() -> Tensor:
        return 1 - data.soft_labels(every).gather(1, labels[:, None])[:, 0]

    data.set_soft_labels(every, normal(1, 40, 5).float().softmax(-1), 0.0)
    note_doubt(data, 30)
    noted = doubts()[:30].mean()
    data.set_soft_labels(every, (2 * normal(2, 40, 5).float()).softmax(-1), 0.0)
    before, ours = data.soft_labels(every), doubts()
    assert abs(ours[:30].mean() - noted) > 0.02
    settle(data, 30)
    after = data.soft_labels(every)
    close = 5e-3 if storage == "bfloat16" else 1e-5
    assert abs(doubts()[:30].mean() - noted) < close
    assert torch.equal(after[30:], before[30:])  # trusted points
    if storage != "bfloat16":
        assert torch.equal(doubts()[:30].argsort(), ours[:30].argsort())
    other = (labels[:30, None] + torch.tensor([1, 2, 3, 4])) % 5
    shares = [x[:30].gather(1, other) for x in (before, after)]
    near = {"rtol": 0, "atol": 2e-2} if storage == "bfloat16" else {"rtol": 1e-4, "atol": 1e-6}
    torch.testing.assert_close(*(x / x.sum(1, keepdim=True) for x in shares), **near)


def test_labels_without_noise_do_not_settle():
    data = DatasetModel(torch.arange(6) % 3, num_classes=3)
    note_doubt(data, 6)
    every = torch.arange(6)
    data.set_soft_labels(every, normal(1, 6, 3).float().softmax(-1), 0.0)
    before = data.label_logits(every)
    settle(data, 6)
    assert torch.equal(data.label_logits(every), before)


def test_many_folds_without_noise_are_no_noise():
    """The mean of twelve identities is a little less than one, in float32."""
    data = DatasetModel(torch.arange(6) % 3, num_classes=3)
    data.transition.zero_()
    for _ in range(12):
        data.transition += torch.eye(3) / 12
    assert data.transition.diagonal().min() < 1
    every = torch.arange(6)
    before = data.label_logits(every)
    follow(data, every, 9 * normal(3, 6, 3), 0.5)
    assert torch.equal(data.label_logits(every), before)
