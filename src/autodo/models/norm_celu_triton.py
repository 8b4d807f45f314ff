"""The fused kernels of ``norm_celu``, for (B, C, H, W) tensors in channels-last layout.

Such a tensor is a matrix of M = B H W rows and C columns. With a = weight / sigma and
b = bias - mean a the forward pass is z = a s + b, y = celu(z). With dz = dy celu'(z) and
xhat = (s - mean) / sigma the backward pass is

    ds = a (dz - mean(dz) - xhat mean(dz xhat)),   dweight = sum(dz xhat),   dbias = sum(dz)

Sums over rows are made in two steps, per part of the rows and then over the parts, in a fixed
order: results repeat bit for bit. All arithmetic is float32 whatever the type of the data.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 8192
"""Numbers that a program works on at a time."""
PROGRAMS = 1056
"""About eight programs for each of an H100's or H200's multiprocessors."""


@triton.jit
def _celu(z):  # type: ignore[no-untyped-def]
    return tl.where(z > 0, z, tl.exp(tl.minimum(z, 0.0)) - 1)


@triton.jit
def _slope(z):  # type: ignore[no-untyped-def]
    return tl.where(z > 0, 1.0, tl.exp(tl.minimum(z, 0.0)))


@triton.jit
def _sums(  # type: ignore[no-untyped-def]
    x_ptr, r_ptr, s_ptr, shift_ptr, part_ptr, M, C: tl.constexpr, ROWS,
    ADD: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Sums of s - shift and of its square over a part of the rows; stores s = x + r."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    part = tl.program_id(1)
    shift = tl.load(shift_ptr + column)
    first = tl.zeros([BM, BC], tl.float32)
    second = tl.zeros([BM, BC], tl.float32)
    for start in range(part * ROWS, min((part + 1) * ROWS, M), BM):
        row = start + tl.arange(0, BM)
        inside = (row < min((part + 1) * ROWS, M))[:, None]
        at = row.to(tl.int64)[:, None] * C + column[None, :]
        s = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        if ADD:
            s += tl.load(r_ptr + at, mask=inside, other=0.0).to(tl.float32)
            rounded = s.to(s_ptr.dtype.element_ty)
            tl.store(s_ptr + at, rounded, mask=inside)
            s = rounded.to(tl.float32)
        d = tl.where(inside, s - shift[None, :], 0.0)
        first += d
        second += d * d
    at = part * 2 * C + column
    tl.store(part_ptr + at, tl.sum(first, 0))
    tl.store(part_ptr + at + C, tl.sum(second, 0))


@triton.jit
def _moments(  # type: ignore[no-untyped-def]
    part_ptr, mean_ptr, var_ptr, weight_ptr, bias_ptr, out_ptr, M, parts, momentum, eps,
    C: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """a, b, mean and 1/sigma from the sums of all parts; moves the running moments."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    first = tl.zeros([BP, BC], tl.float32)
    second = tl.zeros([BP, BC], tl.float32)
    for start in range(0, parts, BP):
        part = start + tl.arange(0, BP)
        inside = (part < parts)[:, None]
        at = part[:, None] * 2 * C + column[None, :]
        first += tl.load(part_ptr + at, mask=inside, other=0.0)
        second += tl.load(part_ptr + at + C, mask=inside, other=0.0)
    offset = tl.sum(first, 0) / M
    var = tl.maximum(tl.sum(second, 0) / M - offset * offset, 0.0)
    running_mean = tl.load(mean_ptr + column)
    running_var = tl.load(var_ptr + column)
    mean = running_mean + offset
    tl.store(mean_ptr + column, running_mean + momentum * offset)
    unbiased = var * (M / tl.maximum(M - 1.0, 1.0))
    tl.store(var_ptr + column, running_var + momentum * (unbiased - running_var))
    inverse = 1 / tl.sqrt(var + eps)
    a = tl.load(weight_ptr + column) * inverse
    tl.store(out_ptr + column, a)
    tl.store(out_ptr + C + column, tl.load(bias_ptr + column) - mean * a)
    tl.store(out_ptr + 2 * C + column, mean)
    tl.store(out_ptr + 3 * C + column, inverse)


@triton.jit
def _apply(  # type: ignore[no-untyped-def]
    s_ptr, y_ptr, coefficient_ptr, M, C: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y = celu(a s + b)."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    inside = (row < M)[:, None]
    at = row.to(tl.int64)[:, None] * C + column[None, :]
    a = tl.load(coefficient_ptr + column)
    b = tl.load(coefficient_ptr + C + column)
    s = tl.load(s_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, _celu(s * a[None, :] + b[None, :]).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward_sums(  # type: ignore[no-untyped-def]
    s_ptr, dy_ptr, coefficient_ptr, part_ptr, M, C: tl.constexpr, ROWS,
    BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Sums of dz and of dz xhat over a part of the rows."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    part = tl.program_id(1)
    a = tl.load(coefficient_ptr + column)[None, :]
    b = tl.load(coefficient_ptr + C + column)[None, :]
    mean = tl.load(coefficient_ptr + 2 * C + column)[None, :]
    inverse = tl.load(coefficient_ptr + 3 * C + column)[None, :]
    first = tl.zeros([BM, BC], tl.float32)
    second = tl.zeros([BM, BC], tl.float32)
    for start in range(part * ROWS, min((part + 1) * ROWS, M), BM):
        row = start + tl.arange(0, BM)
        inside = (row < min((part + 1) * ROWS, M))[:, None]
        at = row.to(tl.int64)[:, None] * C + column[None, :]
        s = tl.load(s_ptr + at, mask=inside, other=0.0).to(tl.float32)
        dz = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32) * _slope(s * a + b)
        first += dz
        second += dz * (s - mean) * inverse
    at = part * 2 * C + column
    tl.store(part_ptr + at, tl.sum(first, 0))
    tl.store(part_ptr + at + C, tl.sum(second, 0))


@triton.jit
def _backward_moments(  # type: ignore[no-untyped-def]
    part_ptr, coefficient_ptr, out_ptr, M, parts,
    C: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dbias, dweight, and k1, k2 with ds = a dz - (k1 + k2 s)."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    first = tl.zeros([BP, BC], tl.float32)
    second = tl.zeros([BP, BC], tl.float32)
    for start in range(0, parts, BP):
        part = start + tl.arange(0, BP)
        inside = (part < parts)[:, None]
        at = part[:, None] * 2 * C + column[None, :]
        first += tl.load(part_ptr + at, mask=inside, other=0.0)
        second += tl.load(part_ptr + at + C, mask=inside, other=0.0)
    dbias = tl.sum(first, 0)
    dweight = tl.sum(second, 0)
    a = tl.load(coefficient_ptr + column)
    mean = tl.load(coefficient_ptr + 2 * C + column)
    inverse = tl.load(coefficient_ptr + 3 * C + column)
    k2 = a * inverse * dweight / M
    tl.store(out_ptr + column, dbias)
    tl.store(out_ptr + C + column, dweight)
    tl.store(out_ptr + 2 * C + column, a * dbias / M - k2 * mean)
    tl.store(out_ptr + 3 * C + column, k2)


@triton.jit
def _backward_apply(  # type: ignore[no-untyped-def]
    s_ptr, dy_ptr, other_ptr, ds_ptr, coefficient_ptr, k_ptr, M, C: tl.constexpr,
    CENTRE: tl.constexpr, ADD: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """ds = a dz - (k1 + k2 s), plus the gradient that s got along the skip connection."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    inside = (row < M)[:, None]
    at = row.to(tl.int64)[:, None] * C + column[None, :]
    a = tl.load(coefficient_ptr + column)[None, :]
    b = tl.load(coefficient_ptr + C + column)[None, :]
    s = tl.load(s_ptr + at, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
    ds = a * dy * _slope(s * a + b)
    if CENTRE:
        k1 = tl.load(k_ptr + 2 * C + column)[None, :]
        k2 = tl.load(k_ptr + 3 * C + column)[None, :]
        ds -= k1 + k2 * s
    if ADD:
        ds += tl.load(other_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(ds_ptr + at, ds.to(ds_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _evaluate(  # type: ignore[no-untyped-def]
    x_ptr, r_ptr, s_ptr, y_ptr, mean_ptr, var_ptr, weight_ptr, bias_ptr, out_ptr, M, eps,
    C: tl.constexpr, ADD: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """s = x + r and y = celu(a s + b) by the running moments; stores a and b."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    a = tl.load(weight_ptr + column) / tl.sqrt(tl.load(var_ptr + column) + eps)
    b = tl.load(bias_ptr + column) - tl.load(mean_ptr + column) * a
    if tl.program_id(1) == 0:
        tl.store(out_ptr + column, a)
        tl.store(out_ptr + C + column, b)
    row = tl.program_id(1) * BM + tl.arange(0, BM)
    inside = (row < M)[:, None]
    at = row.to(tl.int64)[:, None] * C + column[None, :]
    s = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        s += tl.load(r_ptr + at, mask=inside, other=0.0).to(tl.float32)
        rounded = s.to(s_ptr.dtype.element_ty)
        tl.store(s_ptr + at, rounded, mask=inside)
        s = rounded.to(tl.float32)
    tl.store(y_ptr + at, _celu(s * a[None, :] + b[None, :]).to(y_ptr.dtype.element_ty), mask=inside)


class _Shape:
    """How the (M, C) matrix of a tensor is cut into tiles."""

    def __init__(self, x: Tensor) -> None:
        self.columns = x.shape[1]
        self.rows = x.numel() // self.columns
        # The largest power of two that divides C, so that no column needs a mask.
        self.bc = min(self.columns & -self.columns, 64)
        self.bm = max(1, TILE // self.bc)
        self.blocks = self.columns // self.bc
        parts = max(1, min(PROGRAMS // self.blocks, triton.cdiv(self.rows, self.bm)))
        self.rows_per_part = triton.cdiv(triton.cdiv(self.rows, parts), self.bm) * self.bm
        self.parts = triton.cdiv(self.rows, self.rows_per_part)
        self.tiles = (self.blocks, triton.cdiv(self.rows, self.bm))

    def tile(self) -> dict[str, int]:
        return {"BM": self.bm, "BC": self.bc}


def norm_celu(layer: Any, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
    """(s, y) of a NormCELU layer, in its training or eval mode."""
    if not layer.training:
        s, y = _Evaluating.apply(
            x, residual, layer.weight.detach(), layer.bias.detach(),
            layer.running_mean, layer.running_var, layer.eps,
        )  # fmt: skip
    else:
        layer.num_batches_tracked.add_(1)
        s, y = _Training.apply(
            x, residual, layer.weight, layer.bias,
            layer.running_mean, layer.running_var, layer.momentum, layer.eps,
        )  # fmt: skip
    return (x if residual is None else s), y


class _Training(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, x, residual, weight, bias, running_mean, running_var, momentum, eps
    ):
        shape, add = _Shape(x), residual is not None
        columns, rows = shape.columns, shape.rows
        s = torch.empty_like(x) if add else x
        parts = x.new_empty((shape.parts, 2, columns), dtype=torch.float32)
        coefficients = x.new_empty((4, columns), dtype=torch.float32)
        _sums[(shape.blocks, shape.parts)](
            x, residual if add else x, s, running_mean, parts, rows, columns,
            shape.rows_per_part, ADD=add, **shape.tile(),
        )  # fmt: skip
        _moments[(columns // min(shape.bc, 32),)](
            parts, running_mean, running_var, weight, bias, coefficients, rows, shape.parts,
            momentum, eps, C=columns, BP=32, BC=min(shape.bc, 32),
        )  # fmt: skip
        y = torch.empty_like(x)
        _apply[shape.tiles](s, y, coefficients, rows, columns, **shape.tile())
        ctx.save_for_backward(s, coefficients)
        ctx.add = add
        ctx.set_materialize_grads(False)
        if not add:
            s = x.new_empty(0)
            ctx.mark_non_differentiable(s)
        return s, y

    @staticmethod
    def backward(ctx, other, dy):  # type: ignore[no-untyped-def]
        s, coefficients = ctx.saved_tensors
        shape = _Shape(s)
        columns, rows = shape.columns, shape.rows
        dy = dy.contiguous(memory_format=torch.channels_last)
        parts = s.new_empty((shape.parts, 2, columns), dtype=torch.float32)
        k = torch.empty_like(coefficients)
        _backward_sums[(shape.blocks, shape.parts)](
            s, dy, coefficients, parts, rows, columns, shape.rows_per_part, **shape.tile()
        )
        _backward_moments[(columns // min(shape.bc, 32),)](
            parts, coefficients, k, rows, shape.parts, C=columns, BP=32, BC=min(shape.bc, 32)
        )
        ds = _slopes(s, dy, other if ctx.add else None, coefficients, k, shape)
        return ds, ds if ctx.add else None, k[1], k[0], None, None, None, None


class _Evaluating(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, bias, mean, var, eps):  # type: ignore[no-untyped-def]
        shape, add = _Shape(x), residual is not None
        s = torch.empty_like(x) if add else x
        y = torch.empty_like(x)
        coefficients = x.new_empty((2, shape.columns), dtype=torch.float32)
        _evaluate[shape.tiles](
            x, residual if add else x, s, y, mean, var, weight, bias, coefficients, shape.rows,
            eps, C=shape.columns, ADD=add, **shape.tile(),
        )  # fmt: skip
        ctx.save_for_backward(s, coefficients)
        ctx.add = add
        ctx.set_materialize_grads(False)
        if not add:
            s = x.new_empty(0)
            ctx.mark_non_differentiable(s)
        return s, y

    @staticmethod
    def backward(ctx, other, dy):  # type: ignore[no-untyped-def]
        s, coefficients = ctx.saved_tensors
        dy = dy.contiguous(memory_format=torch.channels_last)
        ds = _slopes(s, dy, other if ctx.add else None, coefficients, None, _Shape(s))
        return ds, ds if ctx.add else None, None, None, None, None, None


def _slopes(
    s: Tensor, dy: Tensor, other: Tensor | None, a: Tensor, k: Tensor | None, shape: _Shape
) -> Tensor:
    ds = torch.empty_like(s)
    if other is not None:
        other = other.contiguous(memory_format=torch.channels_last)
    _backward_apply[shape.tiles](
        s, dy, dy if other is None else other, ds, a, a if k is None else k, shape.rows,
        shape.columns, CENTRE=k is not None, ADD=other is not None, **shape.tile(),
    )  # fmt: skip
    return ds
