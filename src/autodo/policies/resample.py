"""Crops of each image, resized to one size: what Pillow's antialiased bilinear ``resize`` gives.

Resizing is linear and separable: out = R_y image R_x^T with one row of triangle weights per output
pixel. Row o of R, for the part [start, start + length) of a side that becomes ``size`` pixels, is

    w_oi  ~  max(0, 1 - |i + 1/2 - centre_o| / support),   centre_o = start + (o + 1/2) scale,

over the pixels i of the part, with scale = length / size and support = max(scale, 1), summing to 1.
Every image has its own rows, so a batch of different crops is two batched products.

Pillow takes the weights to 22 bits and sums integers. So does this module: results that fall
half-way between two levels are common, and would else differ between Pillow and every device. The
sides are taken in the order x, y. So does Pillow, but from version 13 on for crops that shrink much
more in y than in x, where the other order changes some pixels by one level.
"""

from __future__ import annotations

import torch
from torch import Tensor

BITS = 22
"""Of a weight after the binary point."""

HALF_BITS = BITS // 2


def resize(images: Tensor, boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """The ``boxes`` of ``images`` (B, C, H, W) in [0, 1] as (B, C, *size), in levels k/255.

    ``boxes`` (B, 4) are left, top, right, bottom in whole pixels, the last two exclusive; ``size``
    is (height, width).

    >>> image = torch.tensor([[[[0.0, 0.2, 0.4, 0.6]]]])
    >>> resize(image, torch.tensor([[0, 0, 4, 1]]), (1, 2)).mul(255).round().tolist()
    [[[[36.0, 117.0]]]]
    """
    channels, height, width = images.shape[1:]
    left, top, right, bottom = boxes.unbind(1)
    columns = _factors(weights(left, right - left, width, size[1]))
    rows = _factors(weights(top, bottom - top, height, size[0]))
    levels = (images.float() * 255).round_().clamp_(0, 255)
    # Channels ride along with the side that is not resized: one product per image and side.
    with torch.autocast(images.device.type, enabled=False):
        levels = _whole(levels.flatten(1, 2) @ columns.mT, dim=2)
        levels = levels.unflatten(1, (channels, height)).transpose(1, 2).flatten(2)
        levels = _whole(rows @ levels, dim=1)
    return levels.unflatten(2, (channels, size[1])).transpose(1, 2).div(255)


def weights(start: Tensor, length: Tensor, extent: int, size: int) -> Tensor:
    """R (B, size, extent) in units of 2^-22, int32, for a side of ``extent`` pixels.

    ``start`` and ``length`` (B,) say which part of it becomes ``size`` pixels.
    """
    start, length = start.double()[:, None, None], length.double()[:, None, None]
    scale = length / size
    support = scale.clamp_min(1)
    pixel = torch.arange(extent, device=start.device, dtype=torch.float64) - start
    output = torch.arange(size, device=start.device, dtype=torch.float64)[:, None]
    distance = (pixel - (output + 0.5) * scale + 0.5) * support.reciprocal()
    weight = (1 - distance.abs()).clamp_min_(0) * ((pixel >= 0) & (pixel < length))
    weight = weight / weight.sum(-1, keepdim=True)
    return (weight * 2**BITS + 0.5).int()


def _factors(weights: Tensor) -> Tensor:
    """The upper 11 bits of ``weights`` (B, size, extent), then the lower, (B, 2 size, extent).

    Now all factors are integers of at most 11 bits, and with levels all sums below 2^24 (for up to
    32 pixels under a triangle). float32 holds these exactly, in any order of summation, and even
    where products are taken in TF32.
    """
    return torch.cat((weights >> HALF_BITS, weights & (2**HALF_BITS - 1)), dim=1).float()


def _whole(products: Tensor, dim: int) -> Tensor:
    """Levels from the products with upper and lower factors, which follow each other in ``dim``."""
    upper, lower = products.int().chunk(2, dim=dim)
    sums = (upper << HALF_BITS) + lower + (1 << (BITS - 1))
    return (sums >> BITS).clamp_(0, 255).float()
