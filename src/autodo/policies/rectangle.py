"""Filled rectangles, one per image: Cutout and random erasing."""

from __future__ import annotations

import torch
from torch import Tensor

CUTOUT_COLOUR = (125, 123, 114)
"""Red, green and blue that the published policies paint; grey images get their luma."""


def cutout_boxes(sides: Tensor, places: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes (B, 4) of left, top, right, bottom, the last two exclusive, for Cutout.

    ``sides`` (B,) are fractions of the width, ``places`` (B, 2) the centre as fractions of width
    and height, ``size`` is (H, W). As published, for Pillow's rectangles that include their last
    pixel: a box near the left or top edge is moved inside, one near the right or bottom is cut.

    >>> cutout_boxes(torch.tensor([0.25]), torch.tensor([[0.5, 1.0]]), (8, 8))
    tensor([[3, 7, 6, 8]])
    """
    height, width = size
    extent = torch.tensor([width, height], dtype=torch.float64)
    side = sides.double()[:, None] * width
    start = (places.double() * extent - side / 2).clamp_min(0).floor()
    end = torch.minimum(start + side, extent).floor() + 1
    # A side of 0 paints nothing; Pillow's rectangle would still be one pixel.
    end = torch.where(side > 0, torch.minimum(end, extent), start)
    return torch.cat((start, end), dim=1).long()


def fill(images: Tensor, boxes: Tensor, colour: tuple[float, ...]) -> Tensor:
    """``images`` (B, C, H, W) with ``colour``, a number for each channel, in ``boxes`` (B, 4)."""
    height, width = images.shape[-2:]
    left, top, right, bottom = boxes[..., None, None, None].unbind(1)  # (B, 1, 1, 1) each
    x = torch.arange(width, device=images.device)
    y = torch.arange(height, device=images.device)[:, None]
    inside = ((x >= left) & (x < right)) & ((y >= top) & (y < bottom))
    # Made on the device: what is recorded there cannot read a tensor of the host.
    painted = torch.stack([images.new_full((1, 1), number) for number in colour])
    return torch.where(inside, painted, images)


def colour_of(rgb: tuple[float, float, float], channels: int) -> tuple[float, ...]:
    """A colour for images of 1 or 3 channels: its luma, or itself."""
    if channels == 3:
        return rgb
    return (0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2],)
