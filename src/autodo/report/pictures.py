"""Small pictures: one example as a thumbnail, thousands as the tiles of one sheet."""

from __future__ import annotations

import io
from collections.abc import Iterable

import torch
from PIL import Image
from torch import Tensor

THUMBNAIL = 96
"""Longest side of a thumbnail in pixels; smaller images keep their size."""
TILE = 32
"""Longest side of a tile of the map."""
EXACT = 48
"""Up to this side pictures are kept pixel by pixel: there, every pixel is seen."""
QUALITY = 80


def as_picture(image: Tensor) -> Image.Image:
    """An image (C, H, W) as PIL shows it.

    uint8 and floats in [0, 1] are shown as they are; other floats (normalised images) are
    stretched from their lowest to their highest value. One and two channels are shown in grey,
    of more the first three.

    >>> as_picture(torch.tensor([[[-1.0, 1.0]]])).getpixel((1, 0))
    255
    """
    pixels = image.detach().cpu()
    if pixels.is_floating_point():
        low, high = float(pixels.min()), float(pixels.max())
        if low < 0 or high > 1:
            pixels = (pixels - low) / max(high - low, 1e-12)
        pixels = (pixels * 255).round().clamp(0, 255).to(torch.uint8)
    if len(pixels) < 3:
        return Image.fromarray(pixels[0].numpy())
    return Image.fromarray(pixels[:3].permute(1, 2, 0).contiguous().numpy())


def thumbnail(image: Tensor, side: int = THUMBNAIL) -> bytes:
    """An image (C, H, W) as WebP, at most ``side`` pixels wide and high."""
    return encode(fitted(as_picture(image), side))


def fitted(picture: Image.Image, side: int) -> Image.Image:
    """The picture, made smaller where a side is longer than ``side``."""
    longest = max(picture.size)
    if longest <= side:
        return picture
    width, height = (max(1, round(x * side / longest)) for x in picture.size)
    return picture.resize((width, height), Image.Resampling.LANCZOS)


def encode(picture: Image.Image, quality: int | None = None) -> bytes:
    """WebP: pixel by pixel if it is small and no quality is asked for."""
    buffer = io.BytesIO()
    exact = quality is None and max(picture.size) <= EXACT
    picture.save(
        buffer, format="WEBP", lossless=exact, quality=QUALITY if quality is None else quality
    )
    return buffer.getvalue()


def sheet_columns(count: int) -> int:
    """Tiles in a row of a sheet of ``count``: as near to a square as can be.

    >>> sheet_columns(5000), sheet_columns(1)
    (71, 1)
    """
    return max(1, -int(-(count**0.5) // 1))


def sheet(images: Iterable[Tensor], count: int) -> Image.Image:
    """``count`` images (C, H, W) of one shape as square tiles, row by row.

    >>> sheet([torch.zeros(1, 8, 6)] * 5, 5).size
    (24, 16)
    """
    columns = sheet_columns(count)
    whole: Image.Image | None = None
    for k, image in enumerate(images):
        picture = fitted(as_picture(image), TILE)
        side = max(picture.size)
        if whole is None:
            whole = Image.new(picture.mode, (columns * side, -(-count // columns) * side))
        corner = (side - picture.width) // 2, (side - picture.height) // 2
        whole.paste(picture, ((k % columns) * side + corner[0], (k // columns) * side + corner[1]))
    assert whole is not None
    return whole
