"""The optimizers of lambda, at the cost of the batch's rows alone.

``rmsprop`` is the paper's: it divides every coordinate by its own running size, so a point
whose hypergradient is noise moves as fast as one whose label is plainly wrong.
``table`` divides all rows of a table by one running scale: relative sizes stay,
informative points move and the rest stay, and the rate means the same for every dataset size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from autodo.errors import InputError


class RowOptimizer(nn.Module):
    """Turns a batch's gradient into the direction to subtract, keeping state as buffers."""

    def direction(self, index: Tensor, gradient: Tensor) -> Tensor:
        """(B, K) direction for the rows ``index``; equal indices carry equal gradients."""
        raise NotImplementedError  # the interface of the two classes below


class RowRMSprop(RowOptimizer):
    """Exactly torch.optim.RMSprop(alpha=0.99, eps=1e-8) on the dense table.

    A row that is not visited has a zero gradient in the dense optimizer: its value stays and
    its average decays by alpha a step. Decaying it by alpha^k at the next visit is the same.
    """

    state: Tensor
    """(N, K + 1): the averages, and the bits of the step of the last visit. In one row, for what
    a step on a large table waits for is memory, row by row."""
    steps: Tensor

    def __init__(self, rows: Tensor, alpha: float = 0.99, eps: float = 1e-8) -> None:
        super().__init__()
        self.alpha, self.eps = alpha, eps
        self.integer = {torch.float32: torch.int32, torch.float64: torch.int64}[rows.dtype]
        self.register_buffer("state", rows.new_zeros(len(rows), rows.shape[1] + 1))
        self.register_buffer("steps", torch.zeros((), dtype=self.integer))

    def direction(self, index: Tensor, gradient: Tensor) -> Tensor:
        self.steps += 1
        state = self.state.index_select(0, index)
        visited = state[:, -1:].contiguous().view(self.integer)
        gap = (self.steps - visited).to(gradient.dtype)
        square = state[:, :-1] * self.alpha**gap + (1 - self.alpha) * gradient.square()
        now = self.steps.view(gradient.dtype).expand(len(index), 1)
        self.state.index_copy_(0, index, torch.cat([square, now], 1))
        return gradient / (square.sqrt() + self.eps)


class TableScaled(RowOptimizer):
    """The gradient over one running root-mean-square of the whole table, bias-corrected.

    A coordinate whose gradient is of the typical size moves by the learning rate at a visit.
    """

    square: Tensor
    steps: Tensor

    def __init__(self, rows: Tensor, alpha: float = 0.99, eps: float = 1e-12) -> None:
        super().__init__()
        self.alpha, self.eps = alpha, eps
        self.register_buffer("square", torch.zeros((), dtype=rows.dtype))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def direction(self, index: Tensor, gradient: Tensor) -> Tensor:
        self.steps += 1
        self.square.mul_(self.alpha).add_(gradient.square().mean(), alpha=1 - self.alpha)
        square = self.square / (1 - self.alpha ** self.steps.to(self.square.dtype))
        return gradient / (square.sqrt() + self.eps)


OPTIMIZERS: dict[str, type[RowRMSprop] | type[TableScaled]] = {
    "table": TableScaled,
    "rmsprop": RowRMSprop,
}


def make_optimizer(name: str, rows: Tensor) -> RowRMSprop | TableScaled:
    """The optimizer of that name for a table with these rows."""
    if name not in OPTIMIZERS:
        raise InputError(
            f"no lambda optimizer is called {name!r}",
            f"the optimizers are {', '.join(OPTIMIZERS)}",
            "use 'table' (the default) or 'rmsprop' (the paper's)",
        )
    return OPTIMIZERS[name](rows)


def check_saves_memory(name: str, what: str) -> None:
    """Raise if the optimizer would keep in full what ``what`` is there to save.

    >>> check_saves_memory("table", "labels stored as bfloat16")
    """
    if name in OPTIMIZERS and OPTIMIZERS[name] is RowRMSprop:
        raise InputError(
            f"{what} cannot be learned with the optimizer {name!r}",
            "it keeps a number of its own on the device for every number of the full rows",
            'use lambda_optimizer="table", or label_storage="float32" and tables_on="device"',
        )
