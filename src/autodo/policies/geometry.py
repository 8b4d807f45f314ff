"""Geometric operations as Pillow does them: an affine map, the nearest pixel, black outside.

An output pixel (x, y) shows the input pixel that holds the point

    (a x' + b y' + c,  d x' + e y' + f),     x' = x + 1/2,  y' = y + 1/2.

Pillow evaluates this in fixed point with 16 fractional bits. So does this module, and therefore
picks the same pixel, not one of two neighbours at the whim of a rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

OPERATIONS = ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY", "Flip")
"""All that are affine maps. Flip has no value and hence no sign."""

ONE = 1 << 16
"""1 in fixed point."""


def fixed_point(name: str, values: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps (B, 6) in fixed point for one operation with ``values`` (B,) on images of ``size``.

    Rotate is in degrees, positive counterclockwise, about the centre; a shear is x' + v y' about
    the corner; a translation is a fraction of the width or height and moves by the whole pixels
    nearest to it. ``size`` is (H, W).

    >>> fixed_point("TranslateX", torch.tensor([0.25]), (8, 8)).div(ONE).tolist()
    [[1.0, 0.0, 2.5, 0.0, 1.0, 0.5]]
    """
    height, width = size
    values = values.double()
    one, zero = torch.ones_like(values), torch.zeros_like(values)
    if name == "Rotate":
        angle = -torch.deg2rad(values)
        cos, sin = torch.cos(angle), torch.sin(angle)
        x, y = width / 2, height / 2
        rows = (cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y)
    elif name == "ShearX":
        rows = (one, values, zero, zero, one, zero)
    elif name == "ShearY":
        rows = (one, zero, zero, values, one, zero)
    elif name == "TranslateX":
        rows = (one, zero, torch.floor(values * width + 0.5), zero, one, zero)
    elif name == "TranslateY":
        rows = (one, zero, zero, zero, one, torch.floor(values * height + 0.5))
    else:
        rows = (-one, zero, width * one, zero, one, zero)
    a, b, c, d, e, f = rows
    # Pixels are read at their centres: the halves of x' and y' are added once, here.
    rows = (a, b, c + a / 2 + b / 2, d, e, f + d / 2 + e / 2)
    return _smallest_type(torch.floor(torch.stack(rows, dim=-1) * ONE + 0.5).long(), size)


def warp_nearest(images: Tensor, maps: Tensor) -> Tensor:
    """Images (B, C, H, W) of any dtype, seen through their ``maps`` (B, 6) in fixed point.

    >>> image = torch.tensor([[[[1, 2, 3]]]])
    >>> warp_nearest(image, fixed_point("Flip", torch.zeros(1), (1, 3)))
    tensor([[[[3, 2, 1]]]])
    >>> warp_nearest(image, fixed_point("TranslateX", torch.tensor([1 / 3]), (1, 3)))
    tensor([[[[2, 3, 0]]]])
    """
    batch, channels, height, width = images.shape
    a, b, c, d, e, f = maps[..., None, None].unbind(1)  # (B, 1, 1) each
    x = torch.arange(width, device=images.device, dtype=maps.dtype)
    y = torch.arange(height, device=images.device, dtype=maps.dtype)[:, None]
    column = (a * x + (b * y + c)) >> 16
    row = (d * x + (e * y + f)) >> 16
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    source = (row * width + column).mul_(inside).long()
    source = source.view(batch, 1, height * width).expand(-1, channels, -1)
    seen = images.flatten(2).gather(2, source).view_as(images)
    return seen.mul_(inside[:, None])


def crop_and_flip(shift_x: Tensor, shift_y: Tensor, flip: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps (B, 6) that move the window by whole pixels, then mirror what it shows where ``flip``.

    ``shift_x``, ``shift_y`` (B,) are integers, ``flip`` (B,) is boolean.
    """
    width = size[1]
    zero, one = torch.zeros_like(shift_x), torch.ones_like(shift_x)
    sign = torch.where(flip, -one, one)
    start = shift_x + torch.where(flip, width - 1, 0)
    maps = torch.stack((sign, zero, start, zero, one, shift_y), dim=-1) * ONE
    maps[:, (2, 5)] += ONE // 2
    return _smallest_type(maps, size)


def _smallest_type(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """The same ``maps`` (B, 6) int64 as int32, where no coordinate can leave it: half the time."""
    height, width = size
    reach = (maps.abs() * torch.tensor([width, height, 1] * 2)).unflatten(1, (2, 3)).sum(-1)
    return maps.int() if (reach < 2**31).all() else maps
