"""3x3 convolutions of few channels: a network's first ones, which cuDNN does badly.

With C inputs, C at most 16, all 9 C numbers around a pixel make one row of a matrix,

    rows[p, tap C + c] = x[n, c, h + ky - 1, w + kx - 1],   p = (n, h, w),   tap = 3 ky + kx,

so that a convolution is one product, y = rows W^T, and the gradient of its weights another,
dW = dy^T rows, in which the pixels are the reduced dimension. Rows are gathered from the image, of
any layout, and never stored. The gradient to the inputs is nine products with as many outputs as
there are inputs. Such layers are bound by memory: a few numbers are read and many written, or the
other way round. Products are of bfloat16, summed in float32; programs add up weights' gradients of
their share of pixels, a second step adds those in a fixed order.
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

MOST_INPUTS = 16
OUTPUTS = (16, 32, 64)
"""Of a layer; all are in one tile."""
FORWARD = {"BM": 128, "num_warps": 4, "num_stages": 2}
TO_INPUTS = {"BM": 256, "num_warps": 8}
TO_WEIGHTS = {"BM": 128, "num_stages": 3}
"""Pixels of a tile in each kernel, and how it is compiled; the best of four to seven ways each."""
FORWARD_PROGRAMS, WEIGHT_PROGRAMS = 4, 2
"""For each multiprocessor; every one goes through tiles with one set of weights, or of sums."""
PARTS, NUMBERS = 64, 128
"""At a time, when parts of weights' gradients are added."""
NARROW = 2**31
"""Numbers that indices of 32 bits can count."""


def fits(x: Tensor, weight: Tensor) -> bool:
    """Whether there are kernels for images x (B, C, H, W) and these weights."""
    outputs, inputs = weight.shape[:2]
    return (
        inputs <= MOST_INPUTS
        and outputs in OUTPUTS
        and weight.dtype == torch.float32
        and x.dtype in (torch.bfloat16, torch.float32)
        and 0 < x.numel() // inputs * outputs < NARROW
    )


def convolution(x: Tensor, weight: Tensor) -> Tensor:
    """(B, K, H, W) in bfloat16 of x (B, C, H, W), rounded to it, and weight (K, C, 3, 3)."""
    result: Tensor = _Convolution.apply(x, weight)
    return result


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return forward(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        to_inputs, to_weight = ctx.needs_input_grad
        dy = dy.contiguous(memory_format=torch.channels_last)
        dx = input_gradient(x, dy, weight) if to_inputs else None
        return dx, weight_gradient(x, dy, weight) if to_weight else None


def forward(x: Tensor, weight: Tensor) -> Tensor:
    """y (B, K, H, W), channels last."""
    count, _, height, width = x.shape
    y = torch.empty(
        (count, weight.shape[0], height, width),
        dtype=torch.bfloat16, device=x.device, memory_format=torch.channels_last,
    )  # fmt: skip
    pixels, shape = _shape(x, weight)
    tiles = triton.cdiv(pixels, FORWARD["BM"])
    grid = (min(tiles, FORWARD_PROGRAMS * multiprocessors(x.device)),)
    numbers = *x.stride(), *weight.stride(), pixels
    _forward[grid](x, weight, y, *numbers, **shape, **_cut(x), **FORWARD)
    return y


def input_gradient(x: Tensor, dy: Tensor, weight: Tensor) -> Tensor:
    """dx (B, C, H, W), in the layout and the type of x."""
    dx = torch.empty_like(x)
    pixels, shape = _shape(x, weight)
    grid = (triton.cdiv(pixels, TO_INPUTS["BM"]),)
    numbers = *dx.stride(), *weight.stride(), pixels
    _to_inputs[grid](dy, weight, dx, *numbers, **shape, COLUMNS=MOST_INPUTS, **TO_INPUTS)
    return dx


def weight_gradient(x: Tensor, dy: Tensor, weight: Tensor) -> Tensor:
    """dW (K, C, 3, 3) in float32, in the layout of weight."""
    (pixels, shape), cut = _shape(x, weight), _cut(x)
    tiles = triton.cdiv(pixels, TO_WEIGHTS["BM"])
    programs = min(tiles, WEIGHT_PROGRAMS * multiprocessors(x.device))
    row = cut["ROW"] + cut["REST"]
    parts = x.new_empty(programs, len(weight), row, dtype=torch.float32)
    _to_weights[(programs,)](
        x, dy, parts, *x.stride(), pixels,
        **shape, **cut, **TO_WEIGHTS, num_warps=8 if row > 64 else 4,
    )  # fmt: skip
    gradient = torch.empty_like(weight)
    _sum_parts[(triton.cdiv(len(weight) * row, NUMBERS),)](
        parts, gradient, programs, *gradient.stride(),
        C=x.shape[1], K=len(weight), ROW=row, PARTS=PARTS, NUMBERS=NUMBERS,
    )  # fmt: skip
    return gradient


def _shape(x: Tensor, weight: Tensor) -> tuple[int, dict[str, Any]]:
    """The number of pixels, and what kernels are compiled for."""
    count, inputs, height, width = x.shape
    return count * height * width, {
        "H": height, "W": width, "C": inputs, "K": len(weight),
        # The interpreter takes products of bfloat16 for ones of integers.
        "PRODUCT": tl.bfloat16 if x.is_cuda else tl.float32,
    }  # fmt: skip


def _cut(x: Tensor) -> dict[str, int]:
    """Powers of two that a row's 9 C numbers are taken in; 16 channels have 128 and 16."""
    row = 9 * x.shape[1]
    return {"ROW": max(16, min(128, triton.next_power_of_2(row))), "REST": 16 if row > 128 else 0}


@triton.jit
def _pixels(tile, BM: constexpr, H: constexpr, W: constexpr):
    """Number, image, row and column of a tile's pixels: (BM) each."""
    pixel = tile * BM + tl.arange(0, BM)
    return pixel, pixel // (H * W), pixel // W % H, pixel % W


@triton.jit
def _around(
    x_ptr, tile, M, sn, sc, sh, sw, H: constexpr, W: constexpr, C: constexpr, FIRST: constexpr,
    COUNT: constexpr, BM: constexpr, PRODUCT: constexpr,
):  # fmt: skip
    """COUNT numbers of the rows of a tile's pixels, from FIRST on: (BM, COUNT), 0 outside."""
    pixel, image, row, column = _pixels(tile, BM, H, W)
    number = FIRST + tl.arange(0, COUNT)
    tap, channel = number // C, number % C
    row = row[:, None] + (tap // 3)[None, :] - 1
    column = column[:, None] + (tap % 3)[None, :] - 1
    inside = (row >= 0) & (row < H) & (column >= 0) & (column < W)
    inside = inside & (number < 9 * C)[None, :] & (pixel < M)[:, None]
    at = (image * sn)[:, None] + row * sh + column * sw + (channel * sc)[None, :]
    return tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.bfloat16).to(PRODUCT)


@triton.jit
def _taps(
    weight_ptr, wk, wc, wy, wx, C: constexpr, K: constexpr, FIRST: constexpr, COUNT: constexpr,
    PRODUCT: constexpr,
):  # fmt: skip
    """The weights that these numbers are multiplied with: (COUNT, K)."""
    number, output = FIRST + tl.arange(0, COUNT), tl.arange(0, K)
    tap, channel = number // C, number % C
    at = (channel * wc + tap // 3 * wy + tap % 3 * wx)[:, None] + (output * wk)[None, :]
    inside = (number < 9 * C)[:, None]
    return tl.load(weight_ptr + at, mask=inside, other=0.0).to(tl.bfloat16).to(PRODUCT)


@triton.jit
def _forward(
    x_ptr, weight_ptr, y_ptr, sn, sc, sh, sw, wk, wc, wy, wx, M, H: constexpr, W: constexpr,
    C: constexpr, K: constexpr, ROW: constexpr, REST: constexpr, BM: constexpr, PRODUCT: constexpr,
):  # fmt: skip
    """y = rows W^T, with W read once for all tiles of a program."""
    weight = _taps(weight_ptr, wk, wc, wy, wx, C, K, 0, ROW, PRODUCT)
    if REST > 0:
        last = _taps(weight_ptr, wk, wc, wy, wx, C, K, ROW, REST, PRODUCT)
    output = tl.arange(0, K)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM), tl.num_programs(0)):
        rows = _around(x_ptr, tile, M, sn, sc, sh, sw, H, W, C, 0, ROW, BM, PRODUCT)
        y = tl.dot(rows, weight)
        if REST > 0:
            rows = _around(x_ptr, tile, M, sn, sc, sh, sw, H, W, C, ROW, REST, BM, PRODUCT)
            y = tl.dot(rows, last, y)
        pixel = tile * BM + tl.arange(0, BM)
        place = pixel[:, None] * K + output[None, :]
        tl.store(y_ptr + place, y.to(tl.bfloat16), mask=(pixel < M)[:, None])


@triton.jit
def _to_inputs(
    dy_ptr, weight_ptr, dx_ptr, sn, sc, sh, sw, wk, wc, wy, wx, M, H: constexpr, W: constexpr,
    C: constexpr, K: constexpr, BM: constexpr, COLUMNS: constexpr, PRODUCT: constexpr,
):  # fmt: skip
    """dx[p] = sum over taps of dy[p - tap] W[tap], tap after tap."""
    pixel, image, row, column = _pixels(tl.program_id(0), BM, H, W)
    output, channel = tl.arange(0, K), tl.arange(0, COLUMNS)
    given = (channel < C)[None, :]
    sum = tl.zeros([BM, COLUMNS], tl.float32)
    for tap in tl.static_range(9):
        down, right = 1 - tap // 3, 1 - tap % 3
        inside = (row + down >= 0) & (row + down < H) & (column + right >= 0) & (column + right < W)
        inside = inside & (pixel < M)
        at = (pixel + down * W + right)[:, None] * K + output[None, :]
        dy = tl.load(dy_ptr + at, mask=inside[:, None], other=0.0)
        at = (output * wk)[:, None] + (channel * wc)[None, :] + (tap // 3 * wy + tap % 3 * wx)
        weight = tl.load(weight_ptr + at, mask=given, other=0.0).to(tl.bfloat16)
        sum = tl.dot(dy.to(PRODUCT), weight.to(PRODUCT), sum)
    place = (image * sn + row * sh + column * sw)[:, None] + (channel * sc)[None, :]
    tl.store(dx_ptr + place, sum.to(dx_ptr.dtype.element_ty), mask=given & (pixel < M)[:, None])


@triton.jit
def _to_weights(
    x_ptr, dy_ptr, part_ptr, sn, sc, sh, sw, M, H: constexpr, W: constexpr, C: constexpr,
    K: constexpr, ROW: constexpr, REST: constexpr, BM: constexpr, PRODUCT: constexpr,
):  # fmt: skip
    """A program's part of dW = dy^T rows: (K, ROW + REST)."""
    output = tl.arange(0, K)
    sum = tl.zeros([K, ROW], tl.float32)
    if REST > 0:
        last = tl.zeros([K, REST], tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM), tl.num_programs(0)):
        pixel = tile * BM + tl.arange(0, BM)
        at = pixel[:, None] * K + output[None, :]
        dy = tl.trans(tl.load(dy_ptr + at, mask=(pixel < M)[:, None], other=0.0).to(PRODUCT))
        rows = _around(x_ptr, tile, M, sn, sc, sh, sw, H, W, C, 0, ROW, BM, PRODUCT)
        sum = tl.dot(dy, rows, sum)
        if REST > 0:
            rows = _around(x_ptr, tile, M, sn, sc, sh, sw, H, W, C, ROW, REST, BM, PRODUCT)
            last = tl.dot(dy, rows, last)
    at = (tl.program_id(0) * K + output)[:, None] * (ROW + REST)
    tl.store(part_ptr + at + tl.arange(0, ROW)[None, :], sum)
    if REST > 0:
        tl.store(part_ptr + at + ROW + tl.arange(0, REST)[None, :], last)


@triton.jit
def _sum_parts(
    part_ptr, gradient_ptr, parts, wk, wc, wy, wx, C: constexpr, K: constexpr, ROW: constexpr,
    PARTS: constexpr, NUMBERS: constexpr,
):  # fmt: skip
    """NUMBERS of dW (K, ROW) from all parts, always in the same order."""
    at = tl.program_id(0) * NUMBERS + tl.arange(0, NUMBERS)
    inside = at < K * ROW
    sum = tl.zeros([PARTS, NUMBERS], tl.float32)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)
        here = (part < parts)[:, None] & inside[None, :]
        sum += tl.load(part_ptr + part[:, None] * (K * ROW) + at[None, :], mask=here, other=0.0)
    output, number = at // ROW, at % ROW
    tap, channel = number // C, number % C
    place = output * wk + channel * wc + tap // 3 * wy + tap % 3 * wx
    tl.store(gradient_ptr + place, tl.sum(sum, 0), mask=inside & (number < 9 * C))
