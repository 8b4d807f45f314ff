"""Rows in bfloat16, rounded at random so that small steps are not lost.

A bfloat16 has 8 bits: near 4 its neighbours are 1/32 apart, and a step of 0.01 rounded to the
nearest would never move it. Rounded up with the probability of the way to the next, the stored
row is the exact one on average:

    E[round(x)] = x,   |round(x) - x| < 2^-7 |x|

The random bits are a hash of (step, row, column): a run repeats, a resumed one goes on alike, and a
recorded step draws new ones from the counter of steps, which is on the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autodo.hyper.host_rows import read_rows, write_rows
from autodo.hyper.optimizers import check_saves_memory, make_optimizer
from autodo.hyper.table import Table

WORD = 0xFFFFFFFF


class RoundedTable(Table):
    """A table whose rows (N, K) are stored as bfloat16 and computed in float32.

    Exact: the gradient, the optimizer and the step up to its end. Approximated: what is kept of
    the new row, within 2^-7 of each number and right on average. ``assign`` rounds to the nearest
    (within 2^-8). Rows outside the batch are not touched.

    >>> table = RoundedTable(torch.full((1, 1), 4.0))
    >>> for _ in range(100):  # 100 steps of 0.01, each of which moves by 0 or 1/64
    ...     table.step(torch.tensor([0]), torch.ones(1, 1), lr=0.01)
    >>> 2.7 < table.rows.item() < 3.3
    True
    """

    def __init__(
        self, rows: Tensor, optimizer: str = "table", *, host: bool = False, copy: bool = True
    ) -> None:
        super().__init__(rows.to(torch.bfloat16), optimizer, host=host, copy=copy)

    def use(self, optimizer: str) -> None:
        check_saves_memory(optimizer, "labels stored as bfloat16")
        like = torch.empty(0, self.columns, device=self.rows.device)
        self.optimizer = make_optimizer(optimizer, like)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    @torch.no_grad()
    def assign(self, index: Tensor, rows: Tensor) -> None:
        write_rows(self.rows, index.to(self.device), rows.to(self.device, torch.bfloat16))

    def _read(self, index: Tensor) -> Tensor:
        return read_rows(self.rows, index).float()

    def _write(self, index: Tensor, rows: Tensor) -> None:
        bits = random_bits(self.optimizer.steps, index, self.columns)
        write_rows(self.rows, index, round_at_random(rows, bits))


def round_at_random(x: Tensor, bits: Tensor) -> Tensor:
    """float32 to bfloat16, up or down by ``bits``, uniform in 0 .. 2^32 - 1.

    The 16 bits that bfloat16 has not, plus 16 random ones, carry into those it has with the
    probability of what they are worth. What bfloat16 can hold stays as it is.

    >>> x = torch.tensor([1.0, 1.0 + 1 / 256])  # half way to the next, 1 + 1/128
    >>> round_at_random(x, torch.tensor([WORD, WORD])), round_at_random(x, torch.tensor([0, 0]))
    (tensor([1.0000, 1.0078], dtype=torch.bfloat16), tensor([1., 1.], dtype=torch.bfloat16))
    """
    carried = x.contiguous().view(torch.int32) + (bits >> 16).to(torch.int32)
    rounded = (carried & -65536).view(torch.float32)
    # The bits of a NaN may carry into the sign, and become a zero.
    return torch.where(x.isfinite(), rounded, x).to(torch.bfloat16)


def random_bits(step: Tensor, index: Tensor, columns: int) -> Tensor:
    """(B, K) integers in 0 .. 2^32 - 1, a function of step, row and column alone."""
    column = torch.arange(columns, device=index.device)
    rows = _mix(_mix(step.to(torch.int64)) ^ (index & WORD))
    return _mix(_mix(rows[:, None] ^ column))


def _mix(x: Tensor) -> Tensor:
    """A bijection of 0 .. 2^32 - 1 in which every bit of x moves about half of all bits.

    Xor-shift and multiply, twice. Factors are odd and, taken with their sign, below 2^31: no
    product leaves 64 bits.
    """
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & WORD
    x = x ^ (x >> 15)
    x = (x * (0x846CA68B - 2**32)) & WORD
    return x ^ (x >> 16)
