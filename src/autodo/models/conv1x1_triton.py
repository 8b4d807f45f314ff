"""1x1 convolutions along a skip connection, which are bound by memory and which cuDNN does slowly.

In channels-last layout images are a matrix of pixels by channels, and with stride S

    y[p] = W x[at(p)],     at(n, h, w) = (n, S h, S w),     dW = sum over p of dy[p] x[at(p)]^T,

and dx[at(p)] = W^T dy[p]; pixels that the stride leaves out get zeros in the same pass. Products
are of bfloat16, summed in float32. Weights are rounded as they are read and their gradient is not
rounded; programs add up its parts over their share of pixels, which are added in a fixed order.
"""

# Triton gives the arguments of kernels their types.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.language import constexpr

from autodo.cuda import multiprocessors

INPUTS = (16, 32, 64, 128)
OUTPUTS = (16, 32, 64, 128, 256)
STRIDES = (1, 2)
PIXELS = 128
"""Of a tile."""
COLUMNS = 64
"""Outputs, or inputs in the gradient to them, that a program has at the most."""
WEIGHT_PROGRAMS = 2
"""For each multiprocessor, when the gradient of weights is summed."""
NARROW = 2**31
"""Numbers that indices of 32 bits can count."""


def fits(x: Tensor, weight: Tensor, stride: int) -> bool:
    """Whether there are kernels for images x (B, C, H, W), these weights and this stride."""
    outputs, inputs = weight.shape[:2]
    return (
        x.dtype == torch.bfloat16
        and x.is_contiguous(memory_format=torch.channels_last)
        and weight.dtype == torch.float32
        and inputs in INPUTS
        and outputs in OUTPUTS
        and stride in STRIDES
        and 0 < x.numel() // inputs * max(inputs, outputs) < NARROW
    )


def convolution(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """(B, K, H', W') in bfloat16 of x (B, C, H, W) in bfloat16 and weight (K, C, 1, 1)."""
    result: Tensor = _Convolution.apply(x, weight, stride)
    return result


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride = stride
        return forward(x, weight, stride)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        to_inputs, to_weight, _ = ctx.needs_input_grad
        dy = dy.contiguous(memory_format=torch.channels_last)
        dx = input_gradient(x, dy, weight, ctx.stride) if to_inputs else None
        return dx, weight_gradient(x, dy, weight, ctx.stride) if to_weight else None, None


def forward(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """y (B, K, H', W'), channels last."""
    count, _, height, width = x.shape
    y = torch.empty(
        (count, len(weight), -(-height // stride), -(-width // stride)),
        dtype=x.dtype, device=x.device, memory_format=torch.channels_last,
    )  # fmt: skip
    pixels, shape = _shape(x, weight, stride)
    columns = min(COLUMNS, len(weight))
    grid = triton.cdiv(pixels, PIXELS), len(weight) // columns
    strides = weight.stride(0), weight.stride(1)
    _forward[grid](x, weight, y, *strides, pixels, **shape, BM=PIXELS, BK=columns)
    return y


def input_gradient(x: Tensor, dy: Tensor, weight: Tensor, stride: int) -> Tensor:
    """dx (B, C, H, W), channels last."""
    dx = torch.empty_like(x)
    pixels, shape = _shape(x, weight, stride)
    columns = min(COLUMNS, x.shape[1])
    grid = triton.cdiv(pixels, PIXELS), x.shape[1] // columns
    strides = weight.stride(0), weight.stride(1)
    _to_inputs[grid](
        dy, weight, dx, *strides, pixels, **shape,
        BM=PIXELS, BC=columns, BK=min(COLUMNS, len(weight)),
    )  # fmt: skip
    return dx


def weight_gradient(x: Tensor, dy: Tensor, weight: Tensor, stride: int) -> Tensor:
    """dW (K, C, 1, 1) in float32."""
    pixels, shape = _shape(x, weight, stride)
    columns = min(COLUMNS, len(weight))
    blocks = len(weight) // columns
    programs = triton.cdiv(WEIGHT_PROGRAMS * multiprocessors(x.device), blocks)
    programs = min(programs, triton.cdiv(pixels, PIXELS))
    parts = x.new_empty(programs, *weight.shape, dtype=torch.float32)
    _to_weights[programs, blocks](x, dy, parts, pixels, **shape, BM=PIXELS, BK=columns)
    gradient = torch.empty_like(weight)
    return torch.sum(parts, 0, out=gradient)


def _shape(x: Tensor, weight: Tensor, stride: int) -> tuple[int, dict[str, Any]]:
    """The number of y's pixels, and what kernels are compiled for."""
    count, inputs, height, width = x.shape
    rows, columns = -(-height // stride), -(-width // stride)
    return count * rows * columns, {
        "H": height, "W": width, "ROWS": rows, "ROW": columns, "STRIDE": stride,
        "C": inputs, "K": len(weight), "num_warps": 4,
        # The interpreter takes products of bfloat16 for ones of integers.
        "PRODUCT": tl.bfloat16 if x.is_cuda else tl.float32,
    }  # fmt: skip


@triton.jit
def _at(
    pixel, H: constexpr, W: constexpr, ROWS: constexpr, ROW: constexpr, STRIDE: constexpr,
):  # fmt: skip
    """Where in x the pixels of y come from."""
    if STRIDE == 1:
        return pixel
    else:
        image, row, column = pixel // (ROWS * ROW), pixel // ROW % ROWS, pixel % ROW
        return (image * H + row * STRIDE) * W + column * STRIDE


@triton.jit
def _matrix(pointer, row, inside, column, WIDTH: constexpr, PRODUCT: constexpr):
    """Some columns of some rows of a matrix, 0 outside."""
    at = row[:, None] * WIDTH + column[None, :]
    return tl.load(pointer + at, mask=inside[:, None], other=0.0).to(PRODUCT)


@triton.jit
def _weights(weight_ptr, wk, wc, output, channel, PRODUCT: constexpr):
    """Weights of some outputs and channels, rounded: (outputs, channels)."""
    at = output[:, None] * wk + channel[None, :] * wc
    return tl.load(weight_ptr + at).to(tl.bfloat16).to(PRODUCT)


@triton.jit
def _forward(
    x_ptr, weight_ptr, y_ptr, wk, wc, M, H: constexpr, W: constexpr, ROWS: constexpr,
    ROW: constexpr, STRIDE: constexpr, C: constexpr, K: constexpr, BM: constexpr, BK: constexpr,
    PRODUCT: constexpr,
):  # fmt: skip
    """y = x W^T for a tile of pixels and BK outputs."""
    pixel = tl.program_id(0) * BM + tl.arange(0, BM)
    output, channel = tl.program_id(1) * BK + tl.arange(0, BK), tl.arange(0, C)
    x = _matrix(x_ptr, _at(pixel, H, W, ROWS, ROW, STRIDE), pixel < M, channel, C, PRODUCT)
    y = tl.dot(x, tl.trans(_weights(weight_ptr, wk, wc, output, channel, PRODUCT)))
    place = pixel[:, None] * K + output[None, :]
    tl.store(y_ptr + place, y.to(tl.bfloat16), mask=(pixel < M)[:, None])


@triton.jit
def _to_inputs(
    dy_ptr, weight_ptr, dx_ptr, wk, wc, M, H: constexpr, W: constexpr, ROWS: constexpr,
    ROW: constexpr, STRIDE: constexpr, C: constexpr, K: constexpr, BM: constexpr, BC: constexpr,
    BK: constexpr, PRODUCT: constexpr,
):  # fmt: skip
    """dx = dy W for a tile of y's pixels and BC inputs, and zeros around."""
    pixel = tl.program_id(0) * BM + tl.arange(0, BM)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    sum = tl.zeros([BM, BC], tl.float32)
    for first in tl.static_range(0, K, BK):
        output = first + tl.arange(0, BK)
        dy = _matrix(dy_ptr, pixel, pixel < M, output, K, PRODUCT)
        sum = tl.dot(dy, _weights(weight_ptr, wk, wc, output, channel, PRODUCT), sum)
    dx = sum.to(tl.bfloat16)
    at = _at(pixel, H, W, ROWS, ROW, STRIDE)
    to = dx_ptr + at[:, None] * C + channel[None, :]
    tl.store(to, dx, mask=(pixel < M)[:, None])
    if STRIDE == 2:
        below = (pixel < M) & (pixel // ROW % ROWS * 2 + 1 < H)
        right = (pixel < M) & (pixel % ROW * 2 + 1 < W)
        tl.store(to + C, tl.zeros_like(dx), mask=right[:, None])
        tl.store(to + W * C, tl.zeros_like(dx), mask=below[:, None])
        tl.store(to + (W + 1) * C, tl.zeros_like(dx), mask=(below & right)[:, None])


@triton.jit
def _to_weights(
    x_ptr, dy_ptr, part_ptr, M, H: constexpr, W: constexpr, ROWS: constexpr, ROW: constexpr,
    STRIDE: constexpr, C: constexpr, K: constexpr, BM: constexpr, BK: constexpr,
    PRODUCT: constexpr,
):  # fmt: skip
    """A program's part of dW = dy^T x, of BK outputs."""
    output, channel = tl.program_id(1) * BK + tl.arange(0, BK), tl.arange(0, C)
    sum = tl.zeros([BK, C], tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM), tl.num_programs(0)):
        pixel = tile * BM + tl.arange(0, BM)
        dy = _matrix(dy_ptr, pixel, pixel < M, output, K, PRODUCT)
        x = _matrix(x_ptr, _at(pixel, H, W, ROWS, ROW, STRIDE), pixel < M, channel, C, PRODUCT)
        sum = tl.dot(tl.trans(dy), x, sum)
    place = (tl.program_id(0) * K + output)[:, None] * C + channel[None, :]
    tl.store(part_ptr + place, sum)
