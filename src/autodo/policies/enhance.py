"""Pillow's ``ImageEnhance``: the blend of an image with a poorer version of itself.

    out = poor + factor (image - poor)

Factor 0 is the poor version, 1 the image, beyond it more than the image has. The poor version is
the image's own grey (Color), one mean grey (Contrast) or a smoothed image (Sharpness).
Brightness, where it is black, is a table: see ``tables``.
"""

from __future__ import annotations

import torch
from torch import Tensor


def grey(pixels: Tensor) -> Tensor:
    """The luma of ``pixels`` (B, C, H, W) uint8 as float32 levels (B, 1, H, W)."""
    return luma(pixels).float()


def mean_grey(pixels: Tensor) -> Tensor:
    """The mean luma of each image as a float32 level (B, 1, 1, 1), rounded, halves up."""
    luminance = luma(pixels).flatten(1)
    count = luminance.shape[1]
    mean = torch.div(2 * luminance.sum(1) + count, 2 * count, rounding_mode="floor")
    return mean.float().view(-1, 1, 1, 1)


def smooth(pixels: Tensor) -> Tensor:
    """Float32 levels (B, C, H, W), each the mean of its neighbourhood; the outermost stay."""
    levels = pixels.float()
    height, width = pixels.shape[-2:]
    if height < 3 or width < 3:
        return levels
    rows = levels[:, :, :-2] + levels[:, :, 1:-1] + levels[:, :, 2:]
    sums = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    # Weights 1 around 5, over 13: a sum of integers over 13 is never half-way between two levels,
    # so rounding is safe in float32.
    inner = torch.round((sums + 4 * levels[:, :, 1:-1, 1:-1]) / 13)
    levels[:, :, 1:-1, 1:-1] = inner
    return levels


POOR = {"Color": grey, "Contrast": mean_grey, "Sharpness": smooth}
"""The poorer version of an image that each operation blends it with, as float32 levels."""


def luma(pixels: Tensor) -> Tensor:
    """The grey (B, 1, H, W) int32 of uint8 pixels, in Pillow's fixed point for RGB to L.

    >>> luma(torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1)).item()
    76
    """
    if pixels.shape[1] == 1:
        return pixels.int()
    red, green, blue = pixels.int().split(1, dim=1)
    return (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16


def blend(poor: Tensor, pixels: Tensor, factors: Tensor) -> Tensor:
    """``poor`` (float32 levels) to ``pixels`` and beyond; cut to whole levels, as Pillow does.

    ``pixels`` are (B, C, H, W) uint8, ``factors`` (B,). Product and sum are rounded separately: a
    fused operation would differ by a level where the result is nearly whole.
    """
    difference = pixels - poor
    blended = poor + factors.float().view(-1, 1, 1, 1) * difference
    return blended.clamp_(0, 255).to(torch.uint8)
