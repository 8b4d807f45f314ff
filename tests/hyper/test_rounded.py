"""Rows in bfloat16: right on average, repeatable, and never touched outside the batch."""

from __future__ import annotations

import math

import pytest
import torch

from autodo.errors import InputError
from autodo.hyper.rounded import WORD, RoundedTable, random_bits, round_at_random
from autodo.hyper.table import Table


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def bits_of(count: int, step: int = 1) -> torch.Tensor:
    return random_bits(torch.tensor(step), torch.arange(count), 1)[:, 0]


@pytest.mark.parametrize("value", [1.0, 3.14159, -2.255, 1e-3, -7.77e-6, 123.456, 3e38, 1e-40])
def test_the_mean_of_the_roundings_is_the_number(value: float) -> None:
    count = 200_000
    x = torch.full((count,), value)
    rounded = round_at_random(x, bits_of(count)).double()
    neighbours = rounded.unique()
    assert len(neighbours) <= 2
    exact = x[0].double()
    gap = float(neighbours[-1] - neighbours[0])
    assert neighbours[0] <= exact <= neighbours[-1]
    assert gap <= 2**-7 * abs(value) or abs(value) < 2**-126  # subnormal numbers are even-spaced
    # Four standard deviations of the mean of a coin between the neighbours.
    assert abs(float(rounded.mean() - exact)) <= 4 * gap / 2 / math.sqrt(count)


def test_what_bfloat16_holds_stays() -> None:
    x = drawn(0, 1000).bfloat16().float()
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf])
    for number in (torch.cat([x, special]), -special):
        for bits in (0, WORD):
            assert torch.equal(round_at_random(number, torch.tensor(bits)).float(), number)


def test_a_nan_stays_one_whatever_its_bits() -> None:
    # The second is what CUDA computes; adding to its bits would carry into the sign.
    words = torch.tensor([0x7FC00000, 0x7FFFFFFF, -1], dtype=torch.int32)
    for bits in (0, WORD):
        assert round_at_random(words.view(torch.float32), torch.tensor(bits)).isnan().all()


def test_random_bits_are_uniform_and_independent_in_step_row_and_column() -> None:
    """Every bit is set half of the time, alone and together with that of each neighbour."""
    index = torch.arange(400)
    bits = torch.stack([random_bits(torch.tensor(step), index, 100) for step in range(1, 11)])
    assert bits.min() >= 0
    assert bits.max() <= WORD
    count = bits.numel()
    for position in range(16, 32):  # those that round_at_random takes
        bit = (bits >> position & 1).double()
        assert abs(float(bit.mean()) - 0.5) < 4 * 0.5 / math.sqrt(count)
        for dim in range(3):
            shifted = bit.roll(1, dim)
            assert abs(float((bit == shifted).double().mean()) - 0.5) < 5 * 0.5 / math.sqrt(count)


def test_random_bits_do_not_depend_on_the_batch() -> None:
    step, index = torch.tensor(3), torch.tensor([7, 2, 7, 2**33 + 1])
    whole = random_bits(step, torch.arange(10), 5)
    assert torch.equal(random_bits(step, index, 5)[:3], whole[[7, 2, 7]])
    assert not torch.equal(random_bits(step + 1, index, 5)[:3], whole[[7, 2, 7]])


def test_many_small_steps_arrive_where_exact_ones_do() -> None:
    """Each is a fifth of the spacing: rounding to the nearest would not move at all."""
    rows = torch.full((4000, 1), 3.0)
    rounded, exact = RoundedTable(rows), Table(rows)
    index, gradient = torch.arange(4000), torch.ones(4000, 1)
    for _ in range(100):
        rounded.step(index, gradient, 2**-6 / 5)
        exact.step(index, gradient, 2**-6 / 5)
    target = float(exact.rows.mean())
    assert target == pytest.approx(3 - 100 * 2**-6 / 5, rel=1e-4)
    nearest = (rows - 2**-6 / 5).bfloat16().float()
    assert torch.equal(nearest, rows)
    # Deviation of one row after 100 coins of 1/5 between neighbours 2^-6 apart, over 4,000 rows.
    deviation = 2**-6 * math.sqrt(100 * 0.2 * 0.8)
    assert abs(float(rounded.rows.float().mean()) - target) < 4 * deviation / math.sqrt(4000)
    assert float(rounded.rows.float().std()) == pytest.approx(deviation, rel=0.1)


def test_a_step_is_the_float32_step_within_one_spacing() -> None:
    rows = drawn(1, 30, 7).bfloat16().float()
    rounded, exact = RoundedTable(rows), Table(rows)
    index, gradient = torch.tensor([3, 9, 3, 20]), drawn(2, 4, 7)
    before = rounded.rows.clone()
    rounded.step(index, gradient, 0.3)
    exact.step(index, gradient, 0.3)
    difference = (rounded.rows.float() - exact.rows).abs()
    assert (difference <= 2**-7 * exact.rows.abs()).all()
    assert difference[index].max() > 0
    outside = torch.ones(30, dtype=torch.bool)
    outside[index] = False
    assert torch.equal(rounded.rows[outside], before[outside])


def test_it_gathers_float32_and_stores_half_of_it() -> None:
    table = RoundedTable(drawn(3, 10, 4))
    assert table.gather(torch.tensor([1])).dtype == torch.float32
    assert table.rows.nbytes * 2 == table.values(10).nbytes
    table.assign(torch.tensor([2]), torch.full((1, 4), 1 / 3))
    assert torch.equal(table.values(10)[2], torch.full((4,), 1 / 3).bfloat16().float())


def test_saved_and_loaded_it_draws_the_same_numbers() -> None:
    table = RoundedTable(drawn(4, 6, 3))
    index = torch.tensor([0, 5, 5])
    for k in range(4):
        table.step(index, drawn(5 + k, 3, 3), 0.1)
    loaded = RoundedTable(torch.zeros(6, 3))
    loaded.load_state_dict({k: v.clone() for k, v in table.state_dict().items()})
    for k in range(4, 8):
        for each in (table, loaded):
            each.step(index, drawn(5 + k, 3, 3), 0.1)
    assert torch.equal(table.rows, loaded.rows)


def test_an_optimizer_with_a_state_for_every_number_is_refused() -> None:
    with pytest.raises(InputError, match=r"stored as bfloat16.*rmsprop.*lambda_optimizer"):
        RoundedTable(torch.zeros(2, 2), "rmsprop")
