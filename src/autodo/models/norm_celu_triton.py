"""The fused kernels of ``norm_celu``, for (B, C, H, W) tensors in channels-last layout.

Such a tensor is a matrix of M = B H W rows and C columns. With a = weight / sigma and
b = bias - mean a the forward pass is z = a s + b, y = celu(z). With dz = dy celu'(z) and
xhat = (s - mean) / sigma the backward pass is

    ds = a (dz - mean(dz) - xhat mean(dz xhat)),   dweight = sum(dz xhat),   dbias = sum(dz)

Either pass goes through the matrix twice. Sums over rows are made in strips of columns, by
programs that hold sums for 1024 places and add 4096 numbers to them at a time: with 8192 of each,
a thread took 200 to 243 registers and two programs filled a multiprocessor. A second step sums
over the programs. The order is fixed: results repeat bit for bit. y and ds are made in memory
order, whatever C is: with C = TURN 2^k, TURN odd, a tile of 1024 numbers has the columns of the
one TURN before it, and a program does four such tiles with one set of coefficients.

Blocks are dealt to the programs of a sum in turn, so that together they go through the matrix from
start to end. The pass after goes back from the end, and finds in the L2 cache what was read last;
what is read for the last time is marked as the first to leave the cache. All arithmetic is
float32 whatever the type of the data. A NaN passes through: no minimum hides it.
"""

# Triton gives the arguments of kernels their types.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import constexpr

from autodo.cuda import multiprocessors

LENGTH, REPEAT = 1024, 4
"""Places of a tile, and numbers for each. On an H200, with a (262144, 160) matrix of bfloat16,
``_apply`` alone takes 0.0425 ms, 0.0559 ms with 4096 x 1, and a copy 0.0409 ms."""
WIDTH = 64
"""Most columns of a strip. ``_sums`` of that matrix takes 0.0257 ms by 8 programs for each
multiprocessor, 0.0239 ms by 4, and 0.0424 ms by 7 on whole rows."""
FORWARD_PROGRAMS, BACKWARD_PROGRAMS = 7, 5
"""Programs of a sum for each multiprocessor. 24 layers of WRN-28-10, half of them with a residual,
take 1.508 ms forward and 1.811 ms backward, with 128 x 16 in the second step."""
MOMENTS = (256, 8)
"""Parts x columns at a time in the second step: 0.0043 ms for 855 parts of 160 columns, 0.0059 ms
with 128 x 16 and 0.0208 ms with 32 x 32."""
NARROW = 2**31
"""Numbers that indices of 32 bits can count."""


@triton.jit
def _celu(z):
    return tl.where(z > 0, z, tl.exp(z) - 1)


@triton.jit
def _slope(z):
    return tl.where(z > 0, 1.0, tl.exp(z))


@triton.jit
def _load(pointer, inside, EVEN: constexpr, LAST: constexpr):
    """Numbers as float32, 0 outside; EVEN where all are inside, LAST if not read again soon."""
    POLICY: constexpr = "evict_first" if LAST else ""
    if EVEN:
        return tl.load(pointer, eviction_policy=POLICY).to(tl.float32)
    else:
        return tl.load(pointer, mask=inside, other=0.0, eviction_policy=POLICY).to(tl.float32)


@triton.jit
def _store(pointer, x, inside, EVEN: constexpr):
    """Stores numbers, rounded to the type of the tensor; returns them as float32 again."""
    rounded = x.to(pointer.dtype.element_ty)
    if EVEN:
        tl.store(pointer, rounded)
    else:
        tl.store(pointer, rounded, mask=inside)
    return rounded.to(tl.float32)


@triton.jit
def _block(block, column, M, C: constexpr, BM: constexpr, REPEAT: constexpr, WIDE: constexpr):
    """Places in a strip's block of rows, and whether they are in the matrix: (BM, REPEAT, BC)."""
    # Numbers along the middle are all in one thread: a sum over them needs no other.
    row = block * (REPEAT * BM) + tl.arange(0, BM)[:, None] + tl.arange(0, REPEAT)[None, :] * BM
    inside = (row < M)[:, :, None]
    if WIDE:
        row = row.to(tl.int64)
    return row[:, :, None] * C + column[None, None, :], inside


@triton.jit
def _tile(
    program, C: constexpr, TURN: constexpr, REPEAT: constexpr, LENGTH: constexpr, WIDE: constexpr,
):  # fmt: skip
    """Columns (LENGTH) and places (REPEAT, LENGTH) of a program's numbers in memory order."""
    turn = program % TURN
    number = tl.arange(0, LENGTH)
    tile = (program // TURN * REPEAT + tl.arange(0, REPEAT)) * TURN + turn
    if WIDE:
        tile = tile.to(tl.int64)
    return (turn * LENGTH + number) % C, tile[:, None] * LENGTH + number[None, :]


@triton.jit
def _sums(
    x_ptr, r_ptr, s_ptr, shift_ptr, part_ptr, M, C: constexpr, ADD: constexpr, BM: constexpr,
    BC: constexpr, REPEAT: constexpr, EVEN: constexpr, WIDE: constexpr,
):  # fmt: skip
    """Sums of s - shift and of its square over a part of the rows; stores s = x + r."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    part = tl.program_id(1)
    shift = tl.load(shift_ptr + column)[None, None, :]
    first = tl.zeros([BM, BC], tl.float32)
    second = tl.zeros([BM, BC], tl.float32)
    for block in range(part, tl.cdiv(M, REPEAT * BM), tl.num_programs(1)):
        at, inside = _block(block, column, M, C, BM, REPEAT, WIDE)
        s = _load(x_ptr + at, inside, EVEN, LAST=ADD)
        if ADD:
            s += _load(r_ptr + at, inside, EVEN, LAST=True)
            s = _store(s_ptr + at, s, inside, EVEN)
        d = s - shift
        if not EVEN:
            d = tl.where(inside, d, 0.0)
        first += tl.sum(d, 1)
        second += tl.sum(d * d, 1)
    at = part * 2 * C + column
    tl.store(part_ptr + at, tl.sum(first, 0))
    tl.store(part_ptr + at + C, tl.sum(second, 0))


@triton.jit
def _backward_sums(
    s_ptr, dy_ptr, coefficient_ptr, part_ptr, M, C: constexpr, BM: constexpr, BC: constexpr,
    REPEAT: constexpr, EVEN: constexpr, WIDE: constexpr,
):  # fmt: skip
    """Sums of dz and of dz xhat over a part of the rows."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    part = tl.program_id(1)
    a = tl.load(coefficient_ptr + column)[None, None, :]
    b = tl.load(coefficient_ptr + C + column)[None, None, :]
    mean = tl.load(coefficient_ptr + 2 * C + column)[None, None, :]
    first = tl.zeros([BM, BC], tl.float32)
    second = tl.zeros([BM, BC], tl.float32)
    for block in range(part, tl.cdiv(M, REPEAT * BM), tl.num_programs(1)):
        at, inside = _block(block, column, M, C, BM, REPEAT, WIDE)
        s = _load(s_ptr + at, inside, EVEN, LAST=False)
        dz = _load(dy_ptr + at, inside, EVEN, LAST=False) * _slope(s * a + b)
        first += tl.sum(dz, 1)
        second += tl.sum(dz * (s - mean), 1)
    inverse = tl.load(coefficient_ptr + 3 * C + column)
    at = part * 2 * C + column
    tl.store(part_ptr + at, tl.sum(first, 0))
    tl.store(part_ptr + at + C, tl.sum(second * inverse[None, :], 0))


@triton.jit
def _totals(part_ptr, parts, column, C: constexpr, BP: constexpr, BC: constexpr):
    """Both sums over all rows, (BC) each, from those of the parts."""
    first = tl.zeros([BP, BC], tl.float32)
    second = tl.zeros([BP, BC], tl.float32)
    for start in range(0, parts, BP):
        part = start + tl.arange(0, BP)
        inside = (part < parts)[:, None]
        at = part[:, None] * 2 * C + column[None, :]
        first += tl.load(part_ptr + at, mask=inside, other=0.0)
        second += tl.load(part_ptr + at + C, mask=inside, other=0.0)
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def _moments(
    part_ptr, mean_ptr, var_ptr, seen_ptr, weight_ptr, bias_ptr, out_ptr, M, parts, momentum, eps,
    C: constexpr, BP: constexpr, BC: constexpr,
):  # fmt: skip
    """a, b, mean and 1/sigma from the sums of all parts; moves the running moments, and counts."""
    if tl.program_id(0) == 0:
        tl.store(seen_ptr, tl.load(seen_ptr) + 1)
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    first, second = _totals(part_ptr, parts, column, C, BP, BC)
    offset = first / M
    var = second / M - offset * offset
    var = tl.where(var < 0, 0.0, var)
    running_mean = tl.load(mean_ptr + column)
    running_var = tl.load(var_ptr + column)
    mean = running_mean + offset
    tl.store(mean_ptr + column, running_mean + momentum * offset)
    unbiased = var * (M / tl.maximum(M - 1, 1))
    tl.store(var_ptr + column, running_var + momentum * (unbiased - running_var))
    inverse = 1 / tl.sqrt(var + eps)
    a = tl.load(weight_ptr + column) * inverse
    tl.store(out_ptr + column, a)
    tl.store(out_ptr + C + column, tl.load(bias_ptr + column) - mean * a)
    tl.store(out_ptr + 2 * C + column, mean)
    tl.store(out_ptr + 3 * C + column, inverse)


@triton.jit
def _backward_moments(
    part_ptr, coefficient_ptr, out_ptr, M, parts, C: constexpr, BP: constexpr, BC: constexpr,
):  # fmt: skip
    """dbias, dweight, and k1, k2 with ds = a dz - (k1 + k2 s)."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    dbias, dweight = _totals(part_ptr, parts, column, C, BP, BC)
    a = tl.load(coefficient_ptr + column)
    mean = tl.load(coefficient_ptr + 2 * C + column)
    inverse = tl.load(coefficient_ptr + 3 * C + column)
    k2 = a * inverse * dweight / M
    tl.store(out_ptr + column, dbias)
    tl.store(out_ptr + C + column, dweight)
    tl.store(out_ptr + 2 * C + column, a * dbias / M - k2 * mean)
    tl.store(out_ptr + 3 * C + column, k2)


@triton.jit
def _apply(
    s_ptr, y_ptr, coefficient_ptr, N, C: constexpr, TURN: constexpr, REPEAT: constexpr,
    LENGTH: constexpr, EVEN: constexpr, WIDE: constexpr,
):  # fmt: skip
    """y = celu(a s + b), from the end of memory to its start."""
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    column, at = _tile(program, C, TURN, REPEAT, LENGTH, WIDE)
    inside = at < N
    s = _load(s_ptr + at, inside, EVEN, LAST=True)
    a = tl.load(coefficient_ptr + column)[None, :]
    b = tl.load(coefficient_ptr + C + column)[None, :]
    _store(y_ptr + at, _celu(s * a + b), inside, EVEN)


@triton.jit
def _backward_apply(
    s_ptr, dy_ptr, other_ptr, ds_ptr, coefficient_ptr, k_ptr, N, C: constexpr, CENTRE: constexpr,
    ADD: constexpr, TURN: constexpr, REPEAT: constexpr, LENGTH: constexpr, EVEN: constexpr,
    WIDE: constexpr,
):  # fmt: skip
    """ds = a dz - (k1 + k2 s), plus the gradient that s got along the skip connection."""
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    column, at = _tile(program, C, TURN, REPEAT, LENGTH, WIDE)
    inside = at < N
    s = _load(s_ptr + at, inside, EVEN, LAST=True)
    dy = _load(dy_ptr + at, inside, EVEN, LAST=True)
    if ADD:
        other = _load(other_ptr + at, inside, EVEN, LAST=True)
    a = tl.load(coefficient_ptr + column)[None, :]
    b = tl.load(coefficient_ptr + C + column)[None, :]
    ds = a * dy * _slope(s * a + b)
    if CENTRE:
        k2 = tl.load(k_ptr + 3 * C + column)[None, :]
        ds -= tl.load(k_ptr + 2 * C + column)[None, :] + k2 * s
    if ADD:
        ds += other
    _store(ds_ptr + at, ds, inside, EVEN)


@triton.jit
def _evaluate(
    x_ptr, r_ptr, s_ptr, y_ptr, mean_ptr, var_ptr, weight_ptr, bias_ptr, out_ptr, N, eps,
    C: constexpr, ADD: constexpr, TURN: constexpr, REPEAT: constexpr, LENGTH: constexpr,
    EVEN: constexpr, WIDE: constexpr,
):  # fmt: skip
    """s = x + r and y = celu(a s + b) by the running moments; stores a and b."""
    column, at = _tile(tl.program_id(0), C, TURN, REPEAT, LENGTH, WIDE)
    inside = at < N
    s = _load(x_ptr + at, inside, EVEN, LAST=False)
    if ADD:
        s += _load(r_ptr + at, inside, EVEN, LAST=False)
    a = tl.load(weight_ptr + column) / tl.sqrt(tl.load(var_ptr + column) + eps)
    b = tl.load(bias_ptr + column) - tl.load(mean_ptr + column) * a
    # TURN tiles hold every column; where one is there twice, its a and b are the same.
    if tl.program_id(0) < TURN:
        tl.store(out_ptr + column, a)
        tl.store(out_ptr + C + column, b)
    if ADD:
        s = _store(s_ptr + at, s, inside, EVEN)
    _store(y_ptr + at, _celu(s * a[None, :] + b[None, :]), inside, EVEN)


class _Cut:
    """How the (M, C) matrix of a tensor is cut: into strips for sums, into tiles for numbers."""

    def __init__(self, x: Tensor) -> None:
        self.columns, self.numbers, self.device = x.shape[1], x.numel(), x.device
        self.rows = self.numbers // self.columns
        even = self.columns & -self.columns  # the largest power of two that divides C
        bc, turn = min(even, WIDTH), self.columns // min(even, LENGTH)
        bm = LENGTH // bc
        block, whole = bm * REPEAT, turn * LENGTH * REPEAT
        self.strips, self.blocks = self.columns // bc, triton.cdiv(self.rows, block)
        self.strip = {
            "C": self.columns, "BM": bm, "BC": bc, "REPEAT": REPEAT, "EVEN": self.rows % block == 0,
            "WIDE": (self.rows + block) * self.columns >= NARROW,
        }  # fmt: skip
        self.moment = {"C": self.columns, "BP": MOMENTS[0], "BC": min(even, MOMENTS[1])}
        self.moments = (self.columns // self.moment["BC"],)
        self.tile = {
            "C": self.columns, "TURN": turn, "REPEAT": REPEAT, "LENGTH": LENGTH,
            "EVEN": self.numbers % whole == 0, "WIDE": self.numbers + whole >= NARROW,
        }  # fmt: skip
        self.tiles = (triton.cdiv(self.numbers, whole) * turn,)

    def parts(self, programs: int) -> int:
        """Parts of the rows: no more than are needed to have all blocks in as few rounds."""
        most = max(1, programs * multiprocessors(self.device) // self.strips)
        return triton.cdiv(self.blocks, max(1, triton.cdiv(self.blocks, most)))


def norm_celu(layer: Any, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
    """(s, y) of a NormCELU layer, in its training or eval mode."""
    weight, bias, moments = layer.weight, layer.bias, (layer.running_mean, layer.running_var)
    if layer.training:
        running = (*moments, layer.num_batches_tracked)
        s, y = _Training.apply(x, residual, weight, bias, running, layer.momentum, layer.eps)
    else:
        s, y = _Evaluating.apply(x, residual, weight.detach(), bias.detach(), *moments, layer.eps)
    return (x if residual is None else s), y


class _Training(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, bias, running, momentum, eps):
        cut, add = _Cut(x), residual is not None
        count = cut.parts(FORWARD_PROGRAMS)
        s = torch.empty_like(x) if add else x
        parts = x.new_empty((count, 2, cut.columns), dtype=torch.float32)
        coefficients = x.new_empty((4, cut.columns), dtype=torch.float32)
        _sums[(cut.strips, count)](
            x, residual if add else x, s, running[0], parts, cut.rows, ADD=add, **cut.strip
        )
        numbers = cut.rows, count, momentum, eps
        _moments[cut.moments](parts, *running, weight, bias, coefficients, *numbers, **cut.moment)
        y = torch.empty_like(x)
        _apply[cut.tiles](s, y, coefficients, cut.numbers, **cut.tile)
        return _keep(ctx, s, coefficients, add), y

    @staticmethod
    def backward(ctx, other, dy):
        s, coefficients = ctx.saved_tensors
        cut = _Cut(s)
        count = cut.parts(BACKWARD_PROGRAMS)
        dy = dy.contiguous(memory_format=torch.channels_last)
        parts = s.new_empty((count, 2, cut.columns), dtype=torch.float32)
        k = torch.empty_like(coefficients)
        _backward_sums[(cut.strips, count)](s, dy, coefficients, parts, cut.rows, **cut.strip)
        _backward_moments[cut.moments](parts, coefficients, k, cut.rows, count, **cut.moment)
        ds = _slopes(s, dy, other if ctx.add else None, coefficients, k, cut)
        return ds, ds if ctx.add else None, k[1], k[0], None, None, None


class _Evaluating(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, bias, mean, var, eps):
        cut, add = _Cut(x), residual is not None
        s = torch.empty_like(x) if add else x
        y = torch.empty_like(x)
        coefficients = x.new_empty((2, cut.columns), dtype=torch.float32)
        _evaluate[cut.tiles](
            x, residual if add else x, s, y, mean, var, weight, bias, coefficients, cut.numbers,
            eps, ADD=add, **cut.tile,
        )  # fmt: skip
        return _keep(ctx, s, coefficients, add), y

    @staticmethod
    def backward(ctx, other, dy):
        s, coefficients = ctx.saved_tensors
        dy = dy.contiguous(memory_format=torch.channels_last)
        ds = _slopes(s, dy, other if ctx.add else None, coefficients, None, _Cut(s))
        return ds, ds if ctx.add else None, None, None, None, None, None


def _keep(ctx: Any, s: Tensor, coefficients: Tensor, add: bool) -> Tensor:
    """Keeps what the backward pass needs; s as an output, or nothing in its place."""
    ctx.save_for_backward(s, coefficients)
    ctx.add = add
    ctx.set_materialize_grads(False)
    if not add:
        s = s.new_empty(0)
        ctx.mark_non_differentiable(s)
    return s


def _slopes(
    s: Tensor, dy: Tensor, other: Tensor | None, a: Tensor, k: Tensor | None, cut: _Cut
) -> Tensor:
    ds = torch.empty_like(s)
    if other is not None:
        other = other.contiguous(memory_format=torch.channels_last)
    _backward_apply[cut.tiles](
        s, dy, dy if other is None else other, ds, a, a if k is None else k, cut.numbers,
        CENTRE=k is not None, ADD=other is not None, **cut.tile,
    )  # fmt: skip
    return ds
