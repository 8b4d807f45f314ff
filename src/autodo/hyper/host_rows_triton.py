"""The kernels of ``host_rows``: one program for a row of the batch and a block of its columns.

The launcher turns the address of a pinned tensor into the device's and refuses one that is not
pinned. An index beyond the table touches no memory: it reads NaN (0 for integers), which
a run notices, and writes nothing.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
"""Columns that a program moves: a row of a thousand classes at a time."""


@triton.jit
def _gather(  # type: ignore[no-untyped-def]
    rows_ptr, index_ptr, out_ptr, N, K, NAN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    entry = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BK + tl.arange(0, BK)
    row = tl.load(index_ptr + entry)
    known = (row >= 0) & (row < N)
    inside = column < K
    at = tl.where(known, row, 0) * K + column
    if NAN:
        values = tl.load(rows_ptr + at, mask=inside & known, other=float("nan"))
    else:
        values = tl.load(rows_ptr + at, mask=inside & known, other=0)
    tl.store(out_ptr + entry * K + column, values, mask=inside)


@triton.jit
def _scatter(  # type: ignore[no-untyped-def]
    rows_ptr, index_ptr, values_ptr, N, K, BK: tl.constexpr,
):  # fmt: skip
    entry = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BK + tl.arange(0, BK)
    row = tl.load(index_ptr + entry)
    known = (row >= 0) & (row < N)
    inside = column < K
    values = tl.load(values_ptr + entry * K + column, mask=inside)
    at = tl.where(known, row, 0) * K + column
    tl.store(rows_ptr + at, values, mask=inside & known)


def gather(rows: Tensor, index: Tensor) -> Tensor:
    """rows[index] on the device of ``index`` (int64), from pinned ``rows`` (N, K)."""
    count, columns = rows.shape
    out = torch.empty(len(index), columns, dtype=rows.dtype, device=index.device)
    grid, block = _tiles(len(index), columns)
    with torch.cuda.device(index.device):
        _gather[grid](
            rows, index.contiguous(), out, count, columns,
            NAN=rows.is_floating_point(), BK=block,
        )  # fmt: skip
    return out


def scatter(rows: Tensor, index: Tensor, values: Tensor) -> None:
    """rows[index] = values into pinned ``rows`` (N, K)."""
    count, columns = rows.shape
    grid, block = _tiles(len(index), columns)
    with torch.cuda.device(index.device):
        _scatter[grid](
            rows, index.contiguous(), values.to(rows.dtype).contiguous(), count, columns,
            BK=block,
        )  # fmt: skip


def _tiles(entries: int, columns: int) -> tuple[tuple[int, int], int]:
    block = min(BLOCK, triton.next_power_of_2(columns))
    return (entries, triton.cdiv(columns, block)), block
