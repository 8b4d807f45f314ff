"""Lambda as tables: one row of hyperparameters per training point, owned row by row.

A table is read by ``gather(index)`` and changed by ``step(index, gradient, lr)``; both touch
only the rows of the batch, so their cost does not depend on the number of rows. Each
table has its own optimizer (see ``optimizers``), whose state is saved with it. This table stores
its rows as they are; ``rounded`` and ``top`` store large ones in less memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from autodo.hyper.host_rows import read_rows, within_reach, write_rows
from autodo.hyper.optimizers import (
    RowRMSprop,
    TableScaled,
    check_saves_memory,
    make_optimizer,
)
from autodo.kernels import has_triton

PART = 65536
"""Rows that are worked on at a time where all of a table are."""
FUSED_ENTRIES, FUSED_COLUMNS = 512, 64
"""The largest batch whose step the fused kernels take."""


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


def can_fuse(index: Tensor, gradient: Tensor) -> bool:
    """The kernels of ``table_triton`` are for float32 on CUDA, for batches of a usual size."""
    return (
        gradient.is_cuda
        and index.is_cuda
        and gradient.dtype == torch.float32
        and 0 < len(gradient) <= FUSED_ENTRIES
        and gradient.shape[1] <= FUSED_COLUMNS
        and has_triton()
    )


class Table(nn.Module):
    """N rows of K numbers with their optimizer.

    Args:
        rows: (N, K) initial values. A shared table has one row, which every index reads.
        optimizer: "table" or "rmsprop".
        shared: one row serves all points.
        host: the rows stay in host memory, pinned once the table is moved to a CUDA device, which
            then reads and writes them there. On a CPU this changes nothing. One row that all
            points share goes to the device all the same.
        copy: False takes ``rows`` itself, which nobody else may then use.

    >>> table = Table(torch.zeros(3, 2))
    >>> table.step(torch.tensor([1]), torch.tensor([[1.0, 1.0]]), lr=0.1)
    >>> table.rows
    tensor([[ 0.0000,  0.0000],
            [-0.1000, -0.1000],
            [ 0.0000,  0.0000]])
    """

    rows: Tensor
    fused = True
    """Use the fused kernels where they can run; False is for comparisons."""

    def __init__(
        self,
        rows: Tensor,
        optimizer: str = "table",
        *,
        shared: bool = False,
        host: bool = False,
        copy: bool = True,
    ) -> None:
        super().__init__()
        if host:
            check_saves_memory(optimizer, "tables on the host")
        self.register_buffer("rows", rows.clone() if copy else rows)
        self.shared, self.host = shared, host and not shared
        self._device = rows.device
        self.use(optimizer)

    def use(self, optimizer: str) -> None:
        """Start a fresh optimizer of that name."""
        self.optimizer: RowRMSprop | TableScaled = make_optimizer(optimizer, self.rows)

    @property
    def device(self) -> torch.device:
        """Where ``gather`` gives its rows, and steps are taken."""
        return self._device if self.host else self.rows.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the rows as ``gather`` gives them."""
        return self.rows.dtype

    @property
    def columns(self) -> int:
        """K."""
        return self.rows.shape[1]

    def gather(self, index: Tensor) -> Tensor:
        """The rows of the batch: (B, K)."""
        if self.shared:
            return self.rows.expand(len(index), -1)
        return self._read(index.to(self.device))

    @torch.no_grad()
    def step(self, index: Tensor, gradient: Tensor, lr: float | Tensor) -> None:
        """One descent step on the rows of the batch; gradient is (B, K)."""
        index = index.to(self.device)
        if self.shared:
            index, gradient = index.new_zeros(1), gradient.sum(0, keepdim=True)
        elif self.fused and can_fuse(index, gradient):
            from autodo.hyper import table_triton

            if isinstance(self.optimizer, TableScaled) and self.dtype == torch.float32:
                # Rows that are stored otherwise than they are computed with are moved below.
                rows = self.rows if type(self)._read is Table._read else None
                change = table_triton.step(self.optimizer, index, gradient, lr, rows)
                if change is not None:
                    self._write(index, self._read(index) - change)
                return
            gradient = table_triton.sum_duplicates(index, gradient)
        else:
            gradient = sum_duplicates(index, gradient)
        gradient = gradient.to(self.dtype)
        rows = self._read(index)
        self._write(index, rows - lr * self.optimizer.direction(index, gradient))

    @torch.no_grad()
    def assign(self, index: Tensor, rows: Tensor) -> None:
        """Put ``rows`` (B, K) in the place of those of ``index``."""
        self._write(index.to(self.device), rows.to(self.device, self.dtype))

    @torch.no_grad()
    def blend(self, index: Tensor, rows: Tensor, rate: float | Tensor) -> None:
        """Move the rows of ``index`` part of the way to ``rows`` (B, K), from 0 to 1."""
        index = index.to(self.device)
        now = self._read(index)
        self._write(index, now + rate * (rows.to(now) - now))

    def values(self, count: int) -> Tensor:
        """The first ``count`` rows (all there is of a shared table), on the host: (count, K)."""
        if self.shared:
            return self.rows.detach().cpu().clone()
        values = torch.empty(count, self.columns, dtype=self.dtype)
        for part in torch.arange(count).split(PART):
            values[part[0] : part[-1] + 1] = self.gather(part).cpu()
        return values

    def _read(self, index: Tensor) -> Tensor:
        """The rows of ``index``, in the type they are computed with."""
        return read_rows(self.rows, index)

    def _write(self, index: Tensor, rows: Tensor) -> None:
        """Store the rows of ``index``; equal indices carry equal rows."""
        write_rows(self.rows, index, rows)

    # Where the rows are

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Table:
        """Move the table; on the host only its optimizer goes along."""
        if not self.host:
            return super()._apply(fn, recurse)
        self._wait()
        stored, self._buffers = self._buffers, {}
        try:
            super()._apply(fn, recurse)
            device = fn(torch.empty(0)).device
            for name, rows in stored.items():
                assert rows is not None
                stored[name] = within_reach(rows, device)
            self._device = device
        finally:
            self._buffers = stored
        return self

    def _wait(self) -> None:
        """Before the host touches rows that the device writes without telling it."""
        if self.host and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _save_to_state_dict(self, *args: Any) -> None:
        self._wait()
        super()._save_to_state_dict(*args)

    def _load_from_state_dict(self, *args: Any) -> None:
        self._wait()
        super()._load_from_state_dict(*args)
