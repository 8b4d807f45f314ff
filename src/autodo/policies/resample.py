"""Crops of each image, resized to one size: what Pillow's antialiased bilinear ``resize`` gives.

Resizing is linear and separable: out = R_y image R_x^T with one row of triangle weights per output
pixel. Row o of R, for the part [start, start + length) of a side that becomes ``size`` pixels, is

    w_oi  ~  max(0, 1 - |i + 1/2 - centre_o| / support),   centre_o = start + (o + 1/2) scale,

over the pixels i of the part, with scale = length / size and support = max(scale, 1), summing to 1.
Every image has its own rows, so a batch of different crops is two batched products. Results equal
Pillow's but for those half-way between two levels, which may fall to either.
"""

from __future__ import annotations

import torch
from torch import Tensor


def resize(images: Tensor, boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """The ``boxes`` of ``images`` (B, C, H, W) in [0, 1] as (B, C, *size), in levels k/255.

    ``boxes`` (B, 4) are left, top, right, bottom in whole pixels, the last two exclusive; ``size``
    is (height, width).

    >>> image = torch.tensor([[[[0.0, 0.2, 0.4, 0.6]]]])
    >>> resize(image, torch.tensor([[0, 0, 4, 1]]), (1, 2)).mul(255).round().tolist()
    [[[[36.0, 117.0]]]]
    """
    left, top, right, bottom = boxes.unbind(1)
    # Weights summed in bf16 (autocast) are off by whole grey levels.
    with torch.autocast(images.device.type, enabled=False):
        rows = weights(top, bottom - top, images.shape[-2], size[0])
        columns = weights(left, right - left, images.shape[-1], size[1])
        levels = (images.float() * 255).round()
        # Pillow resizes along x first, and rounds in between.
        levels = (levels @ columns.mT[:, None]).round_()
        levels = (rows[:, None] @ levels).round_()
    return levels.clamp_(0, 255).div_(255)


def weights(start: Tensor, length: Tensor, extent: int, size: int) -> Tensor:
    """R (B, size, extent) for parts ``start``, ``length`` (B,) of a side of ``extent`` pixels."""
    start, length = start.float()[:, None, None], length.float()[:, None, None]
    scale = length / size
    support = scale.clamp_min(1)
    pixel = torch.arange(extent, device=start.device, dtype=torch.float32)
    output = torch.arange(size, device=start.device, dtype=torch.float32)[:, None]
    centre = start + (output + 0.5) * scale
    weight = (1 - (pixel + 0.5 - centre).abs() / support).clamp_min(0)
    weight = weight * ((pixel >= start) & (pixel < start + length))
    return weight / weight.sum(-1, keepdim=True)
