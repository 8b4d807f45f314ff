"""Rows of which the largest logits are kept: what is exact, and how classes come in."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autodo.errors import InputError
from autodo.hyper.relabel import initial_label_logits, label_table
from autodo.hyper.table import Table
from autodo.hyper.top import TopTable

LABELS = torch.tensor([0, 4, 2, 5, 1, 3, 2])
CLASSES = 6
EVERY = torch.arange(len(LABELS))


def made(top: int, **options) -> TopTable:
    table = label_table(LABELS, CLASSES, storage="top-k", top=top, **options)
    assert isinstance(table, TopTable)
    return table


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("top", [2, 3, 6, 50])
def test_given_labels_are_stored_exactly(top: int) -> None:
    assert torch.equal(made(top).gather(EVERY), initial_label_logits(LABELS, CLASSES))


@pytest.mark.parametrize("top", [CLASSES, CLASSES + 3])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_with_every_class_kept_it_is_the_dense_table_bit_for_bit(top: int, seed: int) -> None:
    table, dense = made(top), Table(initial_label_logits(LABELS, CLASSES))
    generator = torch.Generator().manual_seed(seed)
    for k in range(6):
        index = torch.randint(len(LABELS), (5,), generator=generator)
        gradient = torch.randn(5, CLASSES, generator=generator)
        for each in (table, dense):
            each.step(index, gradient, 0.5)
        if k == 2:
            rows = torch.randn(2, CLASSES, generator=generator)
            for each in (table, dense):
                each.assign(torch.tensor([3, 6]), rows)
    assert torch.equal(table.gather(EVERY), dense.rows)
    assert torch.equal(table.values(4), dense.values(4))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**31), top=st.integers(2, 5))
def test_kept_classes_have_exactly_the_probabilities_of_the_full_row(seed: int, top: int) -> None:
    table, rows = made(top), 3 * drawn(seed, len(LABELS), CLASSES)
    table.assign(EVERY, rows)
    full, q = rows.softmax(-1), table.gather(EVERY).softmax(-1)
    classes = table.classes.long()
    torch.testing.assert_close(q.gather(1, classes), full.gather(1, classes))
    # The given label first, and beside it the largest.
    assert torch.equal(classes[:, 0], LABELS)
    others = full.scatter(1, LABELS[:, None], -1.0)
    expected = others.topk(top - 1).values
    torch.testing.assert_close(full.gather(1, classes[:, 1:]), expected, rtol=0, atol=0)
    assert all(len(row.unique()) == top for row in classes)


def test_a_step_moves_kept_classes_as_the_dense_one_and_the_rest_together() -> None:
    table = made(3)
    start = torch.tensor([[5.0, 4.0, 3.0, 0.0, 0.0, 0.0]]).log_softmax(-1)
    table.assign(EVERY[:1], start)
    dense = Table(table.values(1))
    gradient = 0.1 * drawn(0, 1, CLASSES)
    table.step(EVERY[:1], gradient, 0.01)
    dense.step(EVERY[:1], gradient, 0.01)
    got, exact = table.gather(EVERY[:1]), dense.rows
    assert torch.equal(got[:, :3], exact[:, :3])
    assert torch.equal(got[0, 3:], got[0, 3].expand(3))
    torch.testing.assert_close(got.softmax(-1)[:, :3], exact.softmax(-1)[:, :3])
    # For a small step the shared value moves by the mean.
    torch.testing.assert_close(got[0, 3], exact[0, 3:].mean(), rtol=0, atol=1e-3)
    assert torch.equal(table.optimizer.square, dense.optimizer.square)


def test_a_class_that_is_not_kept_comes_in_when_steps_ask_for_it() -> None:
    """Also where all begin alike: nothing told before which classes matter."""
    table = made(2)
    wanted = 3
    assert wanted not in table.classes[0]
    gradient = torch.zeros(1, CLASSES)
    gradient[0, wanted], gradient[0, 0] = -1.0, 1.0
    for _ in range(40):
        table.step(EVERY[:1], gradient, 0.1)
    assert table.classes[0].tolist() == [0, wanted]
    assert int(table.gather(EVERY[:1]).argmax()) == wanted
    assert torch.equal(table.gather(EVERY[1:]), initial_label_logits(LABELS[1:], CLASSES))


def test_a_zero_gradient_moves_nothing() -> None:
    table = made(3)
    table.assign(EVERY, drawn(1, len(LABELS), CLASSES))
    before = table.gather(EVERY)
    for _ in range(20):
        table.step(EVERY, torch.zeros(len(LABELS), CLASSES), 0.1)
    assert torch.equal(table.gather(EVERY), before)


def test_duplicates_step_once_by_their_sum() -> None:
    twice, once = made(3), made(3)
    gradient = drawn(2, 3, CLASSES)
    twice.step(torch.tensor([1, 2, 1]), gradient, 0.1)
    # The scale is of the batch's entries; the same for both when the sum stands twice.
    summed = torch.stack([gradient[0] + gradient[2], gradient[1], gradient[0] + gradient[2]])
    once.optimizer.square += 0.01 * summed.square().mean()
    once.optimizer.steps += 1
    scale = (once.optimizer.square / 0.01).sqrt() + 1e-12
    rows = once.gather(torch.tensor([1, 2])) - 0.1 * summed[:2] / scale
    once.assign(torch.tensor([1, 2]), rows)
    torch.testing.assert_close(twice.gather(EVERY), once.gather(EVERY), rtol=1e-5, atol=1e-6)


def test_it_takes_the_memory_that_it_says() -> None:
    table = label_table(torch.zeros(100, dtype=torch.int64), 1000, storage="top-k", top=8)
    assert sum(buffer.nbytes for buffer in (table.rows, table.classes)) == 100 * 52
    assert table.values(3).shape == (3, 1000)


def test_class_numbers_beyond_int16_are_kept() -> None:
    labels = torch.tensor([39_999, 5])
    table = TopTable(labels, 40_000, top=2, high=1.0, low=-1.0)
    assert table.classes.dtype == torch.int32
    assert table.gather(torch.arange(2)).argmax(-1).tolist() == labels.tolist()


def test_saved_and_loaded_tables_continue_identically() -> None:
    table, loaded = made(3), made(3)
    for k in range(4):
        table.step(EVERY[:4], drawn(k, 4, CLASSES), 0.3)
    loaded.load_state_dict({k: v.clone() for k, v in table.state_dict().items()})
    for k in range(4, 8):
        for each in (table, loaded):
            each.step(EVERY[2:], drawn(k, 5, CLASSES), 0.3)
    assert all(torch.equal(table.state_dict()[k], v) for k, v in loaded.state_dict().items())


def test_an_optimizer_with_a_state_for_every_number_is_refused() -> None:
    with pytest.raises(InputError, match=r"stored as top-k.*rmsprop.*lambda_optimizer"):
        made(3, optimizer="rmsprop")
