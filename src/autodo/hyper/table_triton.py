"""The kernels of ``table``: a step of the ``table`` optimizer in two launches.

The first sums the gradients of equal indices, each program for a few entries of the batch, and
copies what the second will overwrite: the old rows and the optimizer's state. So no program
reads what another writes, and equal indices write equal rows. Sums are in a fixed order: results
repeat bit for bit. Rows may be on the device or pinned on the host, as in ``host_rows_triton``.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from autodo.hyper.optimizers import TableScaled

ENTRIES = 2
"""Entries of the batch that a program of the first kernel sums for."""
BLOCK = 32
"""Entries that a program of the second moves."""


@triton.jit
def _sum(  # type: ignore[no-untyped-def]
    index_ptr, gradient_ptr, rows_ptr, square_ptr, steps_ptr,
    summed_ptr, old_ptr, part_ptr, old_square_ptr, old_steps_ptr, N, B, K: tl.constexpr,
    STATE: tl.constexpr, ROWS: tl.constexpr, R: tl.constexpr, BP: tl.constexpr, KP: tl.constexpr,
):  # fmt: skip
    """Gradients summed over equal indices, and this program's part of their squares."""
    entry = tl.arange(0, BP)
    column = tl.arange(0, KP)
    inside = (entry < B)[:, None] & (column < K)[None, :]
    index = tl.load(index_ptr + entry, mask=entry < B, other=-1)
    gradient = tl.load(gradient_ptr + entry[:, None] * K + column[None, :], mask=inside, other=0.0)
    squares = 0.0
    for r in tl.static_range(R):
        i = tl.program_id(0) * R + r
        mine = (column < K) & (i < B)
        own = tl.load(index_ptr + i, mask=i < B, other=-2)
        same = (index == own) & (entry < B)
        summed = tl.sum(tl.where(same[:, None], gradient, 0.0), 0)
        tl.store(summed_ptr + i * K + column, summed, mask=mine)
        squares += tl.sum(summed * summed, 0)
        if ROWS:
            known = mine & (own >= 0) & (own < N)
            at = tl.where((own >= 0) & (own < N), own, 0).to(tl.int64) * K + column
            old = tl.load(rows_ptr + at, mask=known, other=float("nan"))
            tl.store(old_ptr + i * K + column, old, mask=mine)
    if STATE:
        tl.store(part_ptr + tl.program_id(0), squares)
        if tl.program_id(0) == 0:
            tl.store(old_square_ptr, tl.load(square_ptr))
            tl.store(old_steps_ptr, tl.load(steps_ptr))


@triton.jit
def _move(  # type: ignore[no-untyped-def]
    index_ptr, summed_ptr, old_ptr, rows_ptr, part_ptr, old_square_ptr, old_steps_ptr,
    square_ptr, steps_ptr, rate_ptr, rate, alpha, log_alpha, eps, N, B, programs,
    K: tl.constexpr, ROWS: tl.constexpr, RATE: tl.constexpr, BR: tl.constexpr, KP: tl.constexpr,
    GP: tl.constexpr,
):  # fmt: skip
    """rows - rate * gradient / scale into the table; without ROWS what is subtracted, into old."""
    part = tl.arange(0, GP)
    squares = tl.sum(tl.load(part_ptr + part, mask=part < programs, other=0.0), 0)
    square = tl.load(old_square_ptr) * alpha + (1.0 - alpha) * (squares / (B * K))
    steps = tl.load(old_steps_ptr) + 1
    if tl.program_id(0) == 0:
        tl.store(square_ptr, square)
        tl.store(steps_ptr, steps)
    # 1 - alpha^steps by its series where it is small, for the difference would lose its digits.
    y = steps.to(tl.float32) * log_alpha
    series = 1.0 + y / 6 * (1.0 + y / 7 * (1.0 + y / 8 * (1.0 + y / 9)))
    series = 1.0 + y / 2 * (1.0 + y / 3 * (1.0 + y / 4 * (1.0 + y / 5 * series)))
    correction = tl.where(y > -0.7, -y * series, 1.0 - tl.exp(y))
    if RATE:
        rate = tl.load(rate_ptr)
    entry = tl.program_id(0) * BR + tl.arange(0, BR)
    column = tl.arange(0, KP)
    inside = (entry < B)[:, None] & (column < K)[None, :]
    at = entry[:, None] * K + column[None, :]
    summed = tl.load(summed_ptr + at, mask=inside, other=0.0)
    change = rate * (summed / (tl.sqrt(square / correction) + eps))
    if ROWS:
        own = tl.load(index_ptr + entry, mask=entry < B, other=-1)
        known = (own >= 0) & (own < N)
        old = tl.load(old_ptr + at, mask=inside, other=0.0)
        to = tl.where(known, own, 0).to(tl.int64)[:, None] * K + column[None, :]
        tl.store(rows_ptr + to, old - change, mask=inside & known[:, None])
    else:
        tl.store(old_ptr + at, change, mask=inside)


def _tile(entries: int, columns: int) -> dict[str, int]:
    rows, width = triton.next_power_of_2(entries), triton.next_power_of_2(columns)
    return {"BP": rows, "KP": width, "num_warps": min(16, max(4, rows * width // 512))}


def sum_duplicates(index: Tensor, gradient: Tensor) -> Tensor:
    """Every entry's gradient (B, K) summed over the entries with its index (B,)."""
    index, gradient = index.contiguous(), gradient.contiguous()
    entries, columns = gradient.shape
    summed = torch.empty_like(gradient)
    with torch.cuda.device_of(gradient):
        _sum[(triton.cdiv(entries, ENTRIES),)](
            index, gradient, summed, summed, index, summed, summed, summed, summed, index,
            0, entries, columns, STATE=False, ROWS=False, R=ENTRIES, **_tile(entries, columns),
        )  # fmt: skip
    return summed


def step(
    optimizer: TableScaled, index: Tensor, gradient: Tensor, lr: float | Tensor, rows: Tensor | None
) -> Tensor | None:
    """One step of ``optimizer``, whose state it moves, with the gradient (B, K) of ``index``.

    With ``rows`` (N, K) it moves those of ``index``; without, it gives what is to be subtracted
    from them, (B, K).
    """
    square, steps = optimizer.square, optimizer.steps
    index, gradient = index.contiguous(), gradient.contiguous()
    entries, columns = gradient.shape
    programs = triton.cdiv(entries, ENTRIES)
    summed, old = gradient.new_empty(2, entries, columns)
    parts, old_square = gradient.new_empty(programs), torch.empty_like(square)
    old_steps = torch.empty_like(steps)
    table = summed if rows is None else rows
    rate = lr.to(gradient) if isinstance(lr, Tensor) else parts
    tile = _tile(entries, columns)
    with torch.cuda.device_of(gradient):
        _sum[(programs,)](
            index, gradient, table, square, steps, summed, old, parts, old_square, old_steps,
            len(table), entries, columns, STATE=True, ROWS=rows is not None, R=ENTRIES, **tile,
        )  # fmt: skip
        _move[(triton.cdiv(entries, BLOCK),)](
            index, summed, old, table, parts, old_square, old_steps, square, steps, rate,
            0.0 if isinstance(lr, Tensor) else float(lr),
            optimizer.alpha, math.log(optimizer.alpha), optimizer.eps, len(table), entries,
            programs, columns, ROWS=rows is not None, RATE=isinstance(lr, Tensor), BR=BLOCK,
            KP=tile["KP"], GP=triton.next_power_of_2(programs), num_warps=4,
        )  # fmt: skip
    return None if rows is not None else old
