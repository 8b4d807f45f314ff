"""The kernels of ``augment``: values, matrix and warp of an image in one program, and their slope.

As calls of torch they are about a hundred kernels on a few numbers each, and one on the pixels: a
tenth of a small network's training step. The arithmetic is that of ``augment`` and ``warp``; a NaN
in a row makes its image NaN here too.

The gradient is that of the rows. A pixel of the output is read at in = M^-1 (out - t), both from
the centre; with g the slope of the loss along in,

    dM = -M^-T sum(g in^T),   dt = -M^-T sum(g)

so that six sums over the pixels are all that the 14 numbers of a row need. They and the chain from
M to the row are in one program too, which draws its values again instead of having kept them. The
chain is linear in the sums: an image of more than one program adds up the ends, not the sums.
"""

# Triton gives the arguments of kernels their types.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

PIXELS = 1024
"""Of a program, at the most."""
DEGREE = tl.constexpr(math.pi / 180)
EPSILON = tl.constexpr(torch.finfo(torch.float32).eps)
OPERATIONS = tl.constexpr(7)


@triton.jit
def _draw(rows, uniform, normal, constants, temperature, a):
    """The value of operation ``a``, and its slopes along magnitude and gate."""
    magnitude, gate = tl.load(rows + a), tl.load(rows + OPERATIONS + a)
    centre, spread = tl.load(constants + a), tl.load(constants + OPERATIONS + a)
    low, high = tl.load(constants + 2 * OPERATIONS + a), tl.load(constants + 3 * OPERATIONS + a)
    share, drawn = 1 / (1 + tl.exp(-magnitude)), spread * tl.load(normal + a)
    free = centre + drawn * share
    value = tl.where(free < low, low, free)  # minimum and maximum would hide a NaN
    value = tl.where(value > high, high, value)
    u = tl.minimum(tl.maximum(tl.load(uniform + a), EPSILON), 1 - EPSILON)
    logit = gate + tl.log(u / (1 - u))
    hard = tl.where(logit > 0, 1.0, 0.0)
    hard = tl.where(gate == gate, hard, gate)
    soft = 1 / (1 + tl.exp(-logit / temperature))
    by_magnitude = tl.where((free >= low) & (free <= high), hard, 0.0)
    by_magnitude *= drawn * share * (1 - share)
    by_gate = (value - centre) * soft * (1 - soft) / temperature
    return centre + hard * (value - centre), by_magnitude, by_gate


@triton.jit
def _matrix(angle, scale_x, scale_y, shear_x, shear_y):
    """Cosine and sine, tangents, and the four elements of M = R S K."""
    cos, sin = tl.cos(angle), tl.sin(angle)
    tan_x, tan_y = tl.sin(shear_x) / tl.cos(shear_x), tl.sin(shear_y) / tl.cos(shear_y)
    k_yy = 1 + tan_x * tan_y
    m_xx = cos * scale_x + sin * scale_y * tan_y
    m_xy = -cos * scale_x * tan_x - sin * scale_y * k_yy
    m_yx = sin * scale_x - cos * scale_y * tan_y
    m_yy = -sin * scale_x * tan_x + cos * scale_y * k_yy
    return cos, sin, tan_x, tan_y, m_xx, m_xy, m_yx, m_yy


@triton.jit
def _source(pixel, height, width, shift_x, shift_y, m_xx, m_xy, m_yx, m_yy):
    """Where a pixel of the output is read, from the centre of the input."""
    out_x = pixel % width - (width - 1) * 0.5 - shift_x
    out_y = pixel // width - (height - 1) * 0.5 - shift_y
    determinant = m_xx * m_yy - m_xy * m_yx
    in_x = (m_yy * out_x - m_xy * out_y) / determinant
    in_y = (m_xx * out_y - m_yx * out_x) / determinant
    return in_x, in_y


@triton.jit
def _cell(in_x, in_y, inside, height, width, y_stride, x_stride):
    """The four pixels around a source: place of the first, shares, and which of them there are."""
    in_x += (width - 1) * 0.5
    in_y += (height - 1) * 0.5
    left, top = tl.floor(in_x), tl.floor(in_y)
    right, low = in_x - left, in_y - top  # shares of the pixels to the right and below
    # Compared as numbers: what is far outside, or NaN, has no integer.
    at_left, at_right = (left >= 0) & (left < width), (left >= -1) & (left < width - 1)
    at_top, at_low = (top >= 0) & (top < height), (top >= -1) & (top < height - 1)
    some = inside & (at_left | at_right) & (at_top | at_low)
    place = tl.where(some, top, 0.0).to(tl.int64) * y_stride
    place += tl.where(some, left, 0.0).to(tl.int64) * x_stride
    at_top, at_low = inside & at_top, inside & at_low
    nw, ne, sw, se = at_top & at_left, at_top & at_right, at_low & at_left, at_low & at_right
    return place, right, low, nw, ne, sw, se


@triton.jit
def _corners(at, has_nw, has_ne, has_sw, has_se, y_stride, x_stride):
    """The four pixels from ``at`` on, 0 where there is none."""
    nw = tl.load(at, mask=has_nw, other=0.0)
    ne = tl.load(at + x_stride, mask=has_ne, other=0.0)
    sw = tl.load(at + y_stride, mask=has_sw, other=0.0)
    se = tl.load(at + y_stride + x_stride, mask=has_se, other=0.0)
    return nw, ne, sw, se


@triton.jit
def _augment(
    images, rows, noise, constants, out, temperature, row_stride, noise_stride, height, width,
    image_stride, channel_stride, y_stride, x_stride, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    rows += image * row_stride
    uniform = noise + image * OPERATIONS
    normal = uniform + noise_stride
    rotation, _, _ = _draw(rows, uniform, normal, constants, temperature, 0)
    scale_x, _, _ = _draw(rows, uniform, normal, constants, temperature, 1)
    scale_y, _, _ = _draw(rows, uniform, normal, constants, temperature, 2)
    move_x, _, _ = _draw(rows, uniform, normal, constants, temperature, 3)
    move_y, _, _ = _draw(rows, uniform, normal, constants, temperature, 4)
    shear_x, _, _ = _draw(rows, uniform, normal, constants, temperature, 5)
    shear_y, _, _ = _draw(rows, uniform, normal, constants, temperature, 6)
    _, _, _, _, m_xx, m_xy, m_yx, m_yy = _matrix(
        rotation * DEGREE, scale_x, scale_y, shear_x, shear_y
    )
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < height * width
    in_x, in_y = _source(
        pixel, height, width, move_x * width, move_y * height, m_xx, m_xy, m_yx, m_yy
    )
    place, right, low, has_nw, has_ne, has_sw, has_se = _cell(
        in_x, in_y, inside, height, width, y_stride, x_stride
    )
    images += image * image_stride
    out += image * CHANNELS * height * width + pixel * CHANNELS
    for c in tl.static_range(CHANNELS):
        at = images + c * channel_stride + place
        nw, ne, sw, se = _corners(at, has_nw, has_ne, has_sw, has_se, y_stride, x_stride)
        above = nw * (1 - right) + ne * right
        below = sw * (1 - right) + se * right
        tl.store(out + c, above * (1 - low) + below * low, mask=inside)


@triton.jit
def _store(out, a, slope, by_magnitude, by_gate):
    """The slopes along magnitude and gate of operation ``a`` from that along its value."""
    tl.store(out + a, slope * by_magnitude)
    tl.store(out + OPERATIONS + a, slope * by_gate)


@triton.jit
def _augment_backward(
    grad, images, rows, noise, constants, out, temperature, row_stride, noise_stride, height, width,
    grad_image_stride, grad_channel_stride, grad_y_stride, grad_x_stride,
    image_stride, channel_stride, y_stride, x_stride, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    rows += image * row_stride
    uniform = noise + image * OPERATIONS
    normal = uniform + noise_stride
    rotation, m_0, b_0 = _draw(rows, uniform, normal, constants, temperature, 0)
    scale_x, m_1, b_1 = _draw(rows, uniform, normal, constants, temperature, 1)
    scale_y, m_2, b_2 = _draw(rows, uniform, normal, constants, temperature, 2)
    move_x, m_3, b_3 = _draw(rows, uniform, normal, constants, temperature, 3)
    move_y, m_4, b_4 = _draw(rows, uniform, normal, constants, temperature, 4)
    shear_x, m_5, b_5 = _draw(rows, uniform, normal, constants, temperature, 5)
    shear_y, m_6, b_6 = _draw(rows, uniform, normal, constants, temperature, 6)
    cos, sin, tan_x, tan_y, m_xx, m_xy, m_yx, m_yy = _matrix(
        rotation * DEGREE, scale_x, scale_y, shear_x, shear_y
    )
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < height * width
    in_x, in_y = _source(
        pixel, height, width, move_x * width, move_y * height, m_xx, m_xy, m_yx, m_yy
    )
    place, right, low, has_nw, has_ne, has_sw, has_se = _cell(
        in_x, in_y, inside, height, width, y_stride, x_stride
    )
    images += image * image_stride
    grad += image * grad_image_stride
    grad += (pixel // width).to(tl.int64) * grad_y_stride
    grad += (pixel % width).to(tl.int64) * grad_x_stride
    g_x = tl.zeros([BLOCK], tl.float32)
    g_y = tl.zeros([BLOCK], tl.float32)
    for c in tl.static_range(CHANNELS):
        g = tl.load(grad + c * grad_channel_stride, mask=inside, other=0.0)
        at = images + c * channel_stride + place
        nw, ne, sw, se = _corners(at, has_nw, has_ne, has_sw, has_se, y_stride, x_stride)
        g_x += g * ((ne - nw) * (1 - low) + (se - sw) * low)
        g_y += g * ((sw - nw) * (1 - right) + (se - ne) * right)

    x, xx, xy = tl.sum(g_x, 0), tl.sum(g_x * in_x, 0), tl.sum(g_x * in_y, 0)
    y, yx, yy = tl.sum(g_y, 0), tl.sum(g_y * in_x, 0), tl.sum(g_y * in_y, 0)
    determinant = m_xx * m_yy - m_xy * m_yx
    i_xx, i_xy = m_yy / determinant, -m_xy / determinant
    i_yx, i_yy = -m_yx / determinant, m_xx / determinant
    d_x, d_y = -(i_xx * x + i_yx * y), -(i_xy * x + i_yy * y)
    d_xx, d_xy = -(i_xx * xx + i_yx * yx), -(i_xx * xy + i_yx * yy)
    d_yx, d_yy = -(i_xy * xx + i_yy * yx), -(i_xy * xy + i_yy * yy)
    # M = R S K: its slope along the angle is a quarter turn of M, and e is the slope along S K.
    d_angle = m_xx * d_yx - m_yx * d_xx + m_xy * d_yy - m_yy * d_xy
    e_xx, e_xy = cos * d_xx + sin * d_yx, cos * d_xy + sin * d_yy
    e_yx, e_yy = cos * d_yx - sin * d_xx, cos * d_yy - sin * d_xy
    d_scale_x = e_xx - tan_x * e_xy
    d_scale_y = (1 + tan_x * tan_y) * e_yy - tan_y * e_yx
    d_tan_x = scale_y * tan_y * e_yy - scale_x * e_xy
    d_tan_y = scale_y * (tan_x * e_yy - e_yx)

    out += (image * tl.num_programs(1) + tl.program_id(1)) * (2 * OPERATIONS)
    _store(out, 0, d_angle * DEGREE, m_0, b_0)
    _store(out, 1, d_scale_x, m_1, b_1)
    _store(out, 2, d_scale_y, m_2, b_2)
    _store(out, 3, d_x * width, m_3, b_3)
    _store(out, 4, d_y * height, m_4, b_4)
    _store(out, 5, d_tan_x * (1 + tan_x * tan_x), m_5, b_5)
    _store(out, 6, d_tan_y * (1 + tan_y * tan_y), m_6, b_6)


def augmented(
    images: Tensor, rows: Tensor, noise: Tensor, constants: Tensor, temperature: float
) -> Tensor:
    """Images (B, C, H, W), float32, drawn and warped by their rows; in channels-last layout.

    ``rows`` is (B, 14), or (1, 14) for all, ``noise`` (2, B, 7), ``constants`` (4, 7): centre,
    range * M/10, low and high. What comes from outside an image is 0. Differentiable once, in
    ``rows`` alone; ``temperature`` is that of the gates' gradient.
    """
    out: Tensor = _Augmented.apply(
        images, rows.contiguous(), noise.contiguous(), constants, temperature
    )
    return out


class _Augmented(torch.autograd.Function):
    @staticmethod
    def forward(ctx, images, rows, noise, constants, temperature):
        ctx.save_for_backward(images, rows, noise, constants)
        ctx.temperature = temperature
        out = torch.empty_like(images, memory_format=torch.channels_last)
        if images.numel() > 0:
            grid, block = _cut(images)
            _augment[grid](
                images, rows, noise, constants, out, temperature,
                rows.stride(0) if len(rows) > 1 else 0, noise.stride(0), *images.shape[2:],
                *images.stride(), CHANNELS=images.shape[1], BLOCK=block,
            )  # fmt: skip
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        images, rows, noise, constants = ctx.saved_tensors
        if images.numel() == 0:
            return None, torch.zeros_like(rows), None, None, None
        grid, block = _cut(images)
        parts = rows.new_empty((*grid, rows.shape[1]))
        _augment_backward[grid](
            grad, images, rows, noise, constants, parts, ctx.temperature,
            rows.stride(0) if len(rows) > 1 else 0, noise.stride(0), *images.shape[2:],
            *grad.stride(), *images.stride(), CHANNELS=images.shape[1], BLOCK=block,
        )  # fmt: skip
        # One place per program, then a sum: no order of arrival in it, the result repeats.
        d_rows = parts[:, 0] if grid[1] == 1 else parts.sum(1)
        return None, d_rows if len(rows) == len(images) else d_rows.sum(0, True), None, None, None


def _cut(images: Tensor) -> tuple[tuple[int, int], int]:
    """Programs, for each image and part of it, and pixels of a program."""
    pixels = images.shape[2] * images.shape[3]
    block = min(PIXELS, triton.next_power_of_2(pixels))
    return (len(images), triton.cdiv(pixels, block)), block
