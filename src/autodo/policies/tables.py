"""Operations on single grey levels: a table of 256 entries per image, or per channel of it.

All of Pillow's ``ImageOps`` here are such tables, and so is its brightness. Invert, Posterize,
Solarize, SolarizeAdd and Brightness depend on the drawn value alone: their tables are made where
the values are. AutoContrast and Equalize depend on the image: theirs are made on its device.
"""

from __future__ import annotations

import torch
from torch import Tensor

FIXED = ("Invert", "Posterize", "Solarize", "SolarizeAdd", "Brightness")
"""Operations whose table follows from the value."""

SOLARIZE_ADD_THRESHOLD = 128


def fixed_table(name: str, values: Tensor) -> Tensor:
    """Tables (B, 256) uint8 of one operation with ``values`` (B,).

    - Posterize keeps the ``int(value)`` highest bits; none is black.
    - Solarize inverts levels from ``value`` on.
    - SolarizeAdd adds ``int(value)`` to levels below 128, up to 255.
    - Brightness multiplies by ``value``.

    >>> fixed_table("Posterize", torch.tensor([2.0]))[0, [63, 64, 255]].tolist()
    [0, 64, 192]
    """
    levels = torch.arange(256, device=values.device)
    values = values[:, None].double()
    if name == "Invert":
        table = (255 - levels).expand(len(values), -1)
    elif name == "Posterize":
        kept = values.long().clamp(0, 8)
        dropped = torch.ones_like(kept) << (8 - kept)
        table = torch.div(levels, dropped, rounding_mode="floor") * dropped
    elif name == "Solarize":
        table = torch.where(levels < values, levels, 255 - levels)
    elif name == "SolarizeAdd":
        added = (levels + values.long()).clamp(0, 255)
        table = torch.where(levels < SOLARIZE_ADD_THRESHOLD, added, levels)
    else:
        # In float32 and cut, not rounded: how Pillow blends with black.
        table = (levels.float() * values.float()).clamp(0, 255)
    return table.to(torch.uint8)


def auto_contrast_table(pixels: Tensor) -> Tensor:
    """Tables (B, C, 256) that stretch each channel of ``pixels`` (B, C, H, W) to 0 .. 255.

    A channel of one level stays as it is.
    """
    flat = pixels.flatten(2)
    low = flat.amin(2, keepdim=True).double()
    high = flat.amax(2, keepdim=True).double()
    levels = torch.arange(256, device=pixels.device, dtype=torch.float64)
    # Rounded where Pillow rounds, since results that are nearly whole depend on it: a division
    # (255 / tensor would multiply by a reciprocal), and the offset apart from the product.
    scale = torch.full_like(low, 255) / (high - low).clamp_min(1)
    stretched = (levels * scale - low * scale).clamp(0, 255)
    return torch.where(high > low, stretched, levels).to(torch.uint8)


def equalize_table(pixels: Tensor) -> Tensor:
    """Tables (B, C, 256) that level the histogram of each channel of ``pixels`` (B, C, H, W).

    With n_k pixels of level k, N in all and m of the highest level that occurs, Pillow's integers:

        step = (N - m) // 255,     table[k] = (step // 2 + sum_{j < k} n_j) // step

    and a channel with step 0 (small images, few levels) stays as it is.
    """
    flat = pixels.flatten(2).long()
    one = flat.new_ones(()).expand_as(flat)
    counts = flat.new_zeros(*flat.shape[:2], 256).scatter_add_(2, flat, one)
    highest = counts.gather(2, flat.amax(2, keepdim=True))
    step = torch.div(flat.shape[2] - highest, 255, rounding_mode="floor")
    below = counts.cumsum(2) - counts
    numerator = torch.div(step, 2, rounding_mode="floor") + below
    table = torch.div(numerator, step.clamp_min(1), rounding_mode="floor").clamp_max(255)
    levels = torch.arange(256, device=pixels.device)
    return torch.where(step > 0, table, levels).to(torch.uint8)


OF_IMAGE = {"AutoContrast": auto_contrast_table, "Equalize": equalize_table}
"""Operations whose table follows from the image."""


def look_up(pixels: Tensor, tables: Tensor) -> Tensor:
    """Every level of ``pixels`` (B, C, H, W) uint8 replaced by that of ``tables``.

    Tables are (B, C, 256), or (B, 1, 256) or (B, 256) for all channels of an image.
    """
    if tables.dim() == 2:
        tables = tables[:, None]
    return (
        tables.expand(-1, pixels.shape[1], -1).gather(2, pixels.flatten(2).long()).view_as(pixels)
    )
