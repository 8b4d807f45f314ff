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


def fixed_point(operation: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps (..., 6) int64 in fixed point, for images of ``size`` (H, W).

    ``operation`` (...) counts in OPERATIONS; for all other numbers the map changes nothing.
    Rotate is in degrees, positive counterclockwise, about the centre; a shear is x' + v y' about
    the corner; a translation is a fraction of the width or height and moves by the whole pixels
    nearest to it.

    >>> translate_x = torch.tensor([OPERATIONS.index("TranslateX")])
    >>> fixed_point(translate_x, torch.tensor([0.25]), (8, 8)).div(ONE).tolist()
    [[1.0, 0.0, 2.5, 0.0, 1.0, 0.5]]
    """
    height, width = size
    x, y = width / 2, height / 2
    # A value for every operation, 0 but for the drawn one: adding zeros changes no number.
    drawn = operation[..., None] == torch.arange(len(OPERATIONS))
    each = torch.where(drawn, values.double()[..., None], 0.0)
    angle, shear_x, shear_y, move_x, move_y, _ = each.unbind(-1)
    flip = drawn[..., -1].double()
    angle = -torch.deg2rad(angle)
    cos, sin = torch.cos(angle), torch.sin(angle)
    a, b = cos - 2 * flip, sin + shear_x
    c = x - cos * x - sin * y + torch.floor(move_x * width + 0.5) + width * flip
    d, e = shear_y - sin, cos
    f = y + sin * x - cos * y + torch.floor(move_y * height + 0.5)
    # Pixels are read at their centres: the halves of x' and y' are added once, here.
    rows = (a, b, c + a / 2 + b / 2, d, e, f + d / 2 + e / 2)
    return torch.floor(torch.stack(rows, dim=-1) * ONE + 0.5).long()


def warp_nearest(images: Tensor, maps: Tensor) -> Tensor:
    """Images (B, C, H, W) of any dtype, seen through their ``maps`` (B, 6) in fixed point.

    >>> image = torch.tensor([[[[1, 2, 3]]]])
    >>> flip, translate_x = (torch.tensor([OPERATIONS.index(k)]) for k in ("Flip", "TranslateX"))
    >>> warp_nearest(image, fixed_point(flip, torch.zeros(1), (1, 3)))
    tensor([[[[3, 2, 1]]]])
    >>> warp_nearest(image, fixed_point(translate_x, torch.tensor([1 / 3]), (1, 3)))
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
    # The map is linear in the three numbers: one product instead of a call for every entry.
    still = torch.tensor([ONE, 0, ONE // 2, 0, ONE, ONE // 2])
    moves = torch.tensor(
        [[0, 0, ONE, 0, 0, 0], [0, 0, 0, 0, 0, ONE], [-2 * ONE, 0, (size[1] - 1) * ONE, 0, 0, 0]]
    )
    return torch.addmm(still, torch.stack((shift_x, shift_y, flip.long()), dim=1), moves)


def smallest_type(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """The same ``maps`` (B, 6) int64 as int32, where no coordinate can leave it: half the time.

    It looks at the maps, which must be on the host.
    """
    height, width = size
    reach = (maps.abs() * torch.tensor([width, height, 1] * 2)).unflatten(1, (2, 3)).sum(-1)
    return maps.int() if (reach < 2**31).all() else maps
