"""The kernel of ``augment``: values, matrix and warp of an image in one program.

As calls of torch they are about a hundred kernels on a few numbers each, and one on the pixels: a
tenth of a small network's training step. The arithmetic is that of ``augment`` and ``warp``; a NaN
in a row makes its image NaN here too. It knows no gradient.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

PIXELS = 1024
"""Of a program, at the most."""
DEGREE = tl.constexpr(math.pi / 180)
EPSILON = tl.constexpr(torch.finfo(torch.float32).eps)
OPERATIONS = tl.constexpr(7)


@triton.jit
def _value(rows, uniform, normal, constants, a):  # type: ignore[no-untyped-def]
    """The drawn value of operation ``a``, or its centre."""
    magnitude, gate = tl.load(rows + a), tl.load(rows + OPERATIONS + a)
    centre, spread = tl.load(constants + a), tl.load(constants + OPERATIONS + a)
    low, high = tl.load(constants + 2 * OPERATIONS + a), tl.load(constants + 3 * OPERATIONS + a)
    value = centre + spread * (1 / (1 + tl.exp(-magnitude))) * tl.load(normal + a)
    value = tl.where(value < low, low, value)  # minimum and maximum would hide a NaN
    value = tl.where(value > high, high, value)
    u = tl.minimum(tl.maximum(tl.load(uniform + a), EPSILON), 1 - EPSILON)
    value = tl.where(gate + tl.log(u / (1 - u)) > 0, value, centre)
    return tl.where(gate == gate, value, gate)


@triton.jit
def _augment(  # type: ignore[no-untyped-def]
    images,
    rows,
    noise,
    constants,
    out,
    row_stride,
    noise_stride,
    height,
    width,
    image_stride,
    channel_stride,
    y_stride,
    x_stride,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    image = tl.program_id(0).to(tl.int64)
    rows += image * row_stride
    uniform = noise + image * OPERATIONS
    normal = uniform + noise_stride
    angle = _value(rows, uniform, normal, constants, 0) * DEGREE
    scale_x = _value(rows, uniform, normal, constants, 1)
    scale_y = _value(rows, uniform, normal, constants, 2)
    shift_x = _value(rows, uniform, normal, constants, 3) * width
    shift_y = _value(rows, uniform, normal, constants, 4) * height
    shear_x = _value(rows, uniform, normal, constants, 5)
    shear_y = _value(rows, uniform, normal, constants, 6)
    cos, sin = tl.cos(angle), tl.sin(angle)
    tan_x, tan_y = tl.sin(shear_x) / tl.cos(shear_x), tl.sin(shear_y) / tl.cos(shear_y)
    k_yy = 1 + tan_x * tan_y
    m_xx = cos * scale_x + sin * scale_y * tan_y
    m_xy = -cos * scale_x * tan_x - sin * scale_y * k_yy
    m_yx = sin * scale_x - cos * scale_y * tan_y
    m_yy = -sin * scale_x * tan_x + cos * scale_y * k_yy
    determinant = m_xx * m_yy - m_xy * m_yx

    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < height * width
    centre_x, centre_y = (width - 1) * 0.5, (height - 1) * 0.5
    out_x = pixel % width - centre_x - shift_x
    out_y = pixel // width - centre_y - shift_y
    in_x = (m_yy * out_x - m_xy * out_y) / determinant + centre_x
    in_y = (m_xx * out_y - m_yx * out_x) / determinant + centre_y
    left, top = tl.floor(in_x), tl.floor(in_y)
    right, low = in_x - left, in_y - top  # shares of the pixels to the right and below
    # Compared as numbers: what is far outside, or NaN, has no integer.
    at_left, at_right = (left >= 0) & (left < width), (left >= -1) & (left < width - 1)
    at_top, at_low = (top >= 0) & (top < height), (top >= -1) & (top < height - 1)
    some = inside & (at_left | at_right) & (at_top | at_low)
    place = tl.where(some, top, 0.0).to(tl.int64) * y_stride
    place += tl.where(some, left, 0.0).to(tl.int64) * x_stride
    images += image * image_stride
    out += image * CHANNELS * height * width + pixel * CHANNELS
    for c in tl.static_range(CHANNELS):
        at = images + c * channel_stride + place
        nw = tl.load(at, mask=inside & at_top & at_left, other=0.0)
        ne = tl.load(at + x_stride, mask=inside & at_top & at_right, other=0.0)
        sw = tl.load(at + y_stride, mask=inside & at_low & at_left, other=0.0)
        se = tl.load(at + y_stride + x_stride, mask=inside & at_low & at_right, other=0.0)
        above = nw * (1 - right) + ne * right
        below = sw * (1 - right) + se * right
        tl.store(out + c, above * (1 - low) + below * low, mask=inside)


def augmented(images: Tensor, rows: Tensor, noise: Tensor, constants: Tensor) -> Tensor:
    """Images (B, C, H, W), float32, drawn and warped by their rows; in channels-last layout.

    ``rows`` is (B, 14), or (1, 14) for all, ``noise`` (2, B, 7), ``constants`` (4, 7): centre,
    range * M/10, low and high. What comes from outside an image is 0.
    """
    count, channels, height, width = images.shape
    out = torch.empty_like(images, memory_format=torch.channels_last)
    rows, noise = rows.contiguous(), noise.contiguous()
    block = min(PIXELS, triton.next_power_of_2(height * width))
    if images.numel() > 0:
        _augment[(count, triton.cdiv(height * width, block))](
            images,
            rows,
            noise,
            constants,
            out,
            rows.stride(0) if len(rows) > 1 else 0,
            noise.stride(0),
            height,
            width,
            *images.stride(),
            CHANNELS=channels,
            BLOCK=block,
        )
    return out
