"""Tables: their optimizers against dense ones, and that a step touches its own rows alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from autodo.errors import InputError
from autodo.hyper.table import Table, sum_duplicates

OPTIMIZERS = ("table", "rmsprop")

visits = st.fixed_dictionaries(
    {
        "rows": st.integers(1, 9),
        "columns": st.integers(1, 4),
        "seed": st.integers(0, 2**32 - 1),
        # Batch sizes beyond the number of rows force duplicates; small ones leave rows unvisited.
        "batches": st.lists(st.integers(1, 12), min_size=1, max_size=25),
        "rates": st.lists(st.sampled_from((0.0, 1e-3, 0.05, 1.0)), min_size=1, max_size=5),
    }
)


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def random_steps(visit):
    """(index, gradient, learning rate) of each step; gradients of very different sizes."""
    generator = torch.Generator().manual_seed(visit["seed"])
    for step, batch in enumerate(visit["batches"]):
        index = torch.randint(visit["rows"], (batch,), generator=generator)
        size = 10.0 ** torch.randint(-4, 3, (1,), generator=generator)
        gradient = size * normal(generator, batch, visit["columns"])
        yield index, gradient, visit["rates"][step % len(visit["rates"])]


def initial(visit) -> Tensor:
    generator = torch.Generator().manual_seed(visit["seed"] + 1)
    return normal(generator, visit["rows"], visit["columns"])


def dense_gradient(rows: int, index: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of the whole table, summed entry by entry."""
    dense = torch.zeros(rows, gradient.shape[1], dtype=gradient.dtype)
    for i, row in zip(index.tolist(), gradient, strict=True):
        dense[i] += row
    return dense


@settings(max_examples=100, deadline=None)
@given(visit=visits)
def test_rmsprop_rows_equal_torch_rmsprop_on_the_dense_table(visit):
    table = Table(initial(visit), "rmsprop")
    dense = initial(visit).requires_grad_()
    optimizer = torch.optim.RMSprop([dense], alpha=0.99, eps=1e-8)
    for index, gradient, lr in random_steps(visit):
        table.step(index, gradient, lr)
        dense.grad = dense_gradient(visit["rows"], index, gradient)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        torch.testing.assert_close(table.rows, dense.detach(), rtol=1e-12, atol=1e-12)


def test_rmsprop_decays_a_row_while_it_is_not_visited():
    """A long gap, where forgetting the decay would shrink the step most."""
    table = Table(torch.zeros(2, 1, dtype=torch.float64), "rmsprop")
    one = torch.ones(1, 1, dtype=torch.float64)
    table.step(torch.tensor([0]), one, 0.0)
    for _ in range(499):
        table.step(torch.tensor([1]), one, 0.0)
    table.step(torch.tensor([0]), one, 1.0)
    square = 0.01 * 0.99**500 + 0.01
    assert table.rows[0].item() == pytest.approx(-1 / (math.sqrt(square) + 1e-8), rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(visit=visits)
def test_table_optimizer_divides_by_one_bias_corrected_scale(visit):
    table, expected = Table(initial(visit), "table"), initial(visit)
    average = 0.0
    for step, (index, gradient, lr) in enumerate(random_steps(visit), start=1):
        table.step(index, gradient, lr)
        summed = dense_gradient(visit["rows"], index, gradient)
        average = 0.99 * average + 0.01 * summed[index].square().mean().item()
        scale = math.sqrt(average / (1 - 0.99**step))
        expected = expected - lr * summed / (scale + 1e-12)
        torch.testing.assert_close(table.rows, expected, rtol=1e-9, atol=1e-10)


def test_table_optimizer_keeps_the_relative_sizes_of_gradients():
    gradient = torch.tensor([[1.0, -2.0], [0.0, 100.0], [0.5, 3.0]], dtype=torch.float64)
    table = Table(torch.zeros(5, 2, dtype=torch.float64), "table")
    for _ in range(3):
        before = table.rows.clone()
        table.step(torch.tensor([3, 0, 1]), gradient, 0.1)
        moved = (table.rows - before)[[3, 0, 1]]
        torch.testing.assert_close(moved / moved[0, 0], gradient / gradient[0, 0])
        assert moved[0, 0] < 0  # it descends


def test_rmsprop_does_not_keep_them():
    """What the ``table`` optimizer is for: here noise moves as fast as a plain signal."""
    table = Table(torch.zeros(2, 1, dtype=torch.float64), "rmsprop")
    table.step(torch.tensor([0, 1]), torch.tensor([[1e-3], [1e3]], dtype=torch.float64), 0.1)
    torch.testing.assert_close(table.rows[0], table.rows[1], rtol=1e-3, atol=0)


@settings(max_examples=25, deadline=None)
@given(visit=visits, factor=st.sampled_from((1e-2, 7.0, 1e5)))
def test_table_optimizer_ignores_the_scale_of_all_gradients(visit, factor):
    plain, scaled = Table(initial(visit), "table"), Table(initial(visit), "table")
    for index, gradient, lr in random_steps(visit):
        plain.step(index, gradient, lr)
        scaled.step(index, factor * gradient, lr)
    # The 1e-12 that keeps 0 / 0 away shows a little where gradients cancel almost to nothing.
    torch.testing.assert_close(plain.rows, scaled.rows, rtol=1e-4, atol=1e-4)


def test_first_step_of_the_table_optimizer_moves_a_typical_coordinate_by_the_learning_rate():
    table = Table(torch.zeros(4, 3, dtype=torch.float64), "table")
    generator = torch.Generator().manual_seed(0)
    table.step(torch.arange(4), 1e-3 * normal(generator, 4, 3), 0.05)
    assert table.rows.square().mean().sqrt().item() == pytest.approx(0.05, rel=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_zero_gradient_moves_nothing(optimizer):
    table = Table(torch.ones(3, 2), optimizer)
    table.step(torch.tensor([0, 2]), torch.zeros(2, 2), 0.1)
    assert torch.equal(table.rows, torch.ones(3, 2))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rows_outside_the_batch_are_bitwise_unchanged(optimizer):
    generator = torch.Generator().manual_seed(1)
    rows = normal(generator, 50, 3)
    table = Table(rows, optimizer)
    for _ in range(10):
        index = torch.randint(0, 25, (6,), generator=generator) * 2  # even rows alone
        before = table.rows.clone()
        table.step(index, normal(generator, 6, 3), 0.1)
        outside = torch.ones(50, dtype=torch.bool)
        outside[index] = False
        assert torch.equal(table.rows[outside], before[outside])
        assert not torch.isclose(table.rows[index], before[index]).all(-1).any()
    assert torch.equal(table.rows[1::2], rows[1::2])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_order_of_the_batch_does_not_matter(optimizer):
    generator = torch.Generator().manual_seed(2)
    index = torch.tensor([4, 1, 4, 0, 1, 4])
    gradient = normal(generator, 6, 2)
    order = torch.tensor([5, 2, 0, 3, 1, 4])
    first, second = (Table(torch.zeros(6, 2, dtype=torch.float64), optimizer) for _ in range(2))
    first.step(index, gradient, 0.1)
    second.step(index[order], gradient[order], 0.1)
    torch.testing.assert_close(first.rows, second.rows, rtol=1e-12, atol=1e-14)


@settings(max_examples=50, deadline=None)
@given(index=st.lists(st.integers(0, 5), min_size=1, max_size=12), seed=st.integers(0, 2**32 - 1))
def test_duplicates_carry_the_sum_of_their_gradients(index, seed):
    gradient = normal(torch.Generator().manual_seed(seed), len(index), 2)
    indices = torch.tensor(index)
    expected = dense_gradient(6, indices, gradient)[indices]
    torch.testing.assert_close(sum_duplicates(indices, gradient), expected)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_shared_table_steps_its_one_row_by_the_summed_gradient(optimizer):
    generator = torch.Generator().manual_seed(3)
    row = normal(generator, 1, 3)
    shared, single = Table(row, optimizer, shared=True), Table(row, optimizer)
    for _ in range(4):
        gradient = normal(generator, 5, 3)
        shared.step(torch.tensor([70, 3, 3, 9, 0]), gradient, 0.1)
        single.step(torch.tensor([0]), gradient.sum(0, keepdim=True), 0.1)
    assert shared.rows.shape == (1, 3)
    torch.testing.assert_close(shared.rows, single.rows, rtol=1e-12, atol=0)
    assert torch.equal(shared.gather(torch.tensor([8, 1])), shared.rows.expand(2, 3))


def test_gather_returns_the_rows_in_the_order_of_the_index():
    table = Table(torch.arange(8.0).view(4, 2))
    assert torch.equal(table.gather(torch.tensor([3, 0, 3])), table.rows[[3, 0, 3]])


def test_a_table_owns_its_rows():
    rows = torch.zeros(2, 2)
    table = Table(rows)
    table.step(torch.tensor([0]), torch.ones(1, 2), 0.1)
    assert torch.equal(rows, torch.zeros(2, 2))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_keeps_no_graph(optimizer):
    table = Table(torch.zeros(2, 2), optimizer)
    table.step(torch.tensor([0]), torch.ones(1, 2, requires_grad=True), 0.1)
    assert not any(buffer.requires_grad for buffer in table.buffers())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("shared", [False, True])
def test_saved_and_loaded_tables_continue_identically(optimizer, shared):
    generator = torch.Generator().manual_seed(4)
    count = 1 if shared else 7
    rows = normal(generator, count, 2)
    steps = [
        (torch.randint(count, (3,), generator=generator), normal(generator, 3, 2))
        for _ in range(12)
    ]
    table = Table(rows, optimizer, shared=shared)
    for index, gradient in steps[:6]:
        table.step(index, gradient, 0.1)
    saved = {name: value.clone() for name, value in table.state_dict().items()}
    loaded = Table(torch.zeros_like(rows), optimizer, shared=shared)
    loaded.load_state_dict(saved)
    for index, gradient in steps[6:]:
        table.step(index, gradient, 0.1)
        loaded.step(index, gradient, 0.1)
    assert torch.equal(table.rows, loaded.rows)
    assert all(torch.equal(table.state_dict()[k], v) for k, v in loaded.state_dict().items())


def test_use_starts_a_fresh_optimizer_and_keeps_the_rows():
    table = Table(torch.zeros(2, 1), "table")
    table.step(torch.tensor([0]), torch.ones(1, 1), 0.1)
    kept = table.rows.clone()
    table.use("rmsprop")
    assert torch.equal(table.rows, kept)
    table.step(torch.tensor([1]), torch.ones(1, 1), 0.1)
    assert table.rows[1].item() == pytest.approx(-0.1 / 0.1, rel=1e-4)  # sqrt(1 - 0.99) = 0.1


def test_an_unknown_optimizer_is_an_input_error():
    with pytest.raises(InputError, match=r"'adam'.*table, rmsprop"):
        Table(torch.zeros(2, 1), "adam")
