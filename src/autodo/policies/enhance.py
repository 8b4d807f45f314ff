"""Pillow's ``ImageEnhance``: the blend of an image with a poorer version of itself.

    out = poor + factor (image - poor)

Factor 0 is the poor version, 1 the image, beyond it more than the image has. The poor version is
the image's own grey (Color), one mean grey (Contrast) or a smoothed image (Sharpness).
Brightness, where it is black, is a table: see ``tables``.
"""

from __future__ import annotations

import torch
from torch import Tensor

OPERATIONS = ("Color", "Contrast", "Sharpness")


def color(pixels: Tensor, factors: Tensor) -> Tensor:
    """``pixels`` (B, C, H, W) uint8 with more or less colour; one channel stays as it is."""
    if pixels.shape[1] == 1:
        return pixels
    return _blend(luma(pixels).float(), pixels, factors)


def contrast(pixels: Tensor, factors: Tensor) -> Tensor:
    """``pixels`` (B, C, H, W) uint8 with more or less contrast about their mean luma."""
    luminance = luma(pixels).flatten(1)
    count = luminance.shape[1]
    # The mean is rounded to a grey level, halves up.
    mean = torch.div(2 * luminance.sum(1) + count, 2 * count, rounding_mode="floor")
    return _blend(mean.float().view(-1, 1, 1, 1), pixels, factors)


def sharpness(pixels: Tensor, factors: Tensor) -> Tensor:
    """``pixels`` (B, C, H, W) uint8, sharpened or smoothed; the outermost pixels stay."""
    height, width = pixels.shape[-2:]
    if height < 3 or width < 3:
        return pixels
    levels = pixels.float()
    rows = levels[:, :, :-2] + levels[:, :, 1:-1] + levels[:, :, 2:]
    sums = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    # Weights 1 around 5, over 13: a sum of integers over 13 is never half-way between two levels,
    # so rounding is safe in float32.
    smooth = levels.clone()
    smooth[:, :, 1:-1, 1:-1] = torch.round((sums + 4 * levels[:, :, 1:-1, 1:-1]) / 13)
    return _blend(smooth, pixels, factors)


def luma(pixels: Tensor) -> Tensor:
    """The grey (B, 1, H, W) int64 of uint8 pixels, in Pillow's fixed point for RGB to L.

    >>> luma(torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1)).item()
    76
    """
    if pixels.shape[1] == 1:
        return pixels.long()
    red, green, blue = pixels.long().split(1, dim=1)
    return (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16


def _blend(poor: Tensor, pixels: Tensor, factors: Tensor) -> Tensor:
    """``poor`` (float32 levels) to ``pixels`` and beyond; cut to whole levels, as Pillow does.

    Product and sum are rounded separately: a fused operation would differ by a level where the
    result is nearly whole.
    """
    difference = pixels - poor
    blended = poor + factors.float().view(-1, 1, 1, 1) * difference
    return blended.clamp_(0, 255).to(torch.uint8)
