"""Lambda as tables: one row of hyperparameters per training point, owned row by row.

A table is read by ``gather(index)`` and changed by ``step(index, gradient, lr)``; both touch
only the rows of the batch, so their cost does not depend on the number of rows. Each
table has its own optimizer (see ``optimizers``), whose state is saved with it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from autodo.hyper.optimizers import make_optimizer


def sum_duplicates(index: Tensor, gradient: Tensor) -> Tensor:
    """Give every entry of the batch the summed gradient of all entries with its index.

    Entries of the same point then compute and write the same new row, so duplicates need
    no special case later. Sorting instead of ``torch.unique`` keeps shapes static: no
    waiting for the device.

    >>> sum_duplicates(torch.tensor([7, 2, 7]), torch.tensor([[1.0], [2.0], [3.0]])).flatten()
    tensor([4., 2., 4.])
    """
    ordered, order = index.sort()
    new = torch.ones_like(ordered)
    new[1:] = (ordered[1:] != ordered[:-1]).to(new.dtype)
    group = torch.empty_like(index)
    group[order] = new.cumsum(0) - 1
    return torch.zeros_like(gradient).index_add_(0, group, gradient)[group]


class Table(nn.Module):
    """N rows of K numbers with their optimizer.

    Args:
        rows: (N, K) initial values. A shared table has one row, which every index reads.
        optimizer: "table" or "rmsprop".
        shared: one row serves all points.

    >>> table = Table(torch.zeros(3, 2))
    >>> table.step(torch.tensor([1]), torch.tensor([[1.0, 1.0]]), lr=0.1)
    >>> table.rows
    tensor([[ 0.0000,  0.0000],
            [-0.1000, -0.1000],
            [ 0.0000,  0.0000]])
    """

    rows: Tensor

    def __init__(self, rows: Tensor, optimizer: str = "table", *, shared: bool = False) -> None:
        super().__init__()
        self.register_buffer("rows", rows.clone())
        self.shared = shared
        self.use(optimizer)

    def use(self, optimizer: str) -> None:
        """Start a fresh optimizer of that name."""
        self.optimizer = make_optimizer(optimizer, self.rows)

    def gather(self, index: Tensor) -> Tensor:
        """The rows of the batch: (B, K)."""
        if self.shared:
            return self.rows.expand(len(index), -1)
        return self.rows.index_select(0, index.to(self.rows.device))

    @torch.no_grad()
    def step(self, index: Tensor, gradient: Tensor, lr: float | Tensor) -> None:
        """One descent step on the rows of the batch; gradient is (B, K)."""
        index = index.to(self.rows.device)
        if self.shared:
            index, gradient = index.new_zeros(1), gradient.sum(0, keepdim=True)
        else:
            gradient = sum_duplicates(index, gradient)
        gradient = gradient.to(self.rows.dtype)
        # index_select and index_copy_ move whole rows; rows[index] fetches number by number, which
        # takes longer where every row misses the cache (see benchmarks/table_rows.py).
        rows = self.rows.index_select(0, index)
        self.rows.index_copy_(0, index, rows - lr * self.optimizer.direction(index, gradient))
