"""Small grey images for people: in the terminal, and as one PNG."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from PIL import Image, ImageDraw
from rich.color import Color
from rich.console import Console, Group
from rich.style import Style
from rich.text import Text
from torch import Tensor

SHADES = " .:-=+*#%@"


def terminal_image(image: Tensor, *, colour: bool) -> list[Text]:
    """Lines that draw a grey image (H, W) in [0, 1].

    With colour two rows of pixels share a line of half blocks; without, each pixel is two
    characters of ink.

    >>> [str(line) for line in terminal_image(torch.tensor([[0.0, 1.0]]), colour=False)]
    ['  @@']
    """
    if not colour:
        level = (image * (len(SHADES) - 1)).round().long().clamp(0, len(SHADES) - 1)
        return [Text("".join(SHADES[v] * 2 for v in row)) for row in level.tolist()]
    grey = (image * 255).round().long().clamp(0, 255)
    if len(grey) % 2:
        grey = torch.cat([grey, grey.new_zeros(1, grey.shape[1])])
    lines = []
    for upper, lower in zip(grey[::2].tolist(), grey[1::2].tolist(), strict=True):
        line = Text()
        for a, b in zip(upper, lower, strict=True):
            style = Style(color=Color.from_rgb(a, a, a), bgcolor=Color.from_rgb(b, b, b))
            line.append("▀", style)
        lines.append(line)
    return lines


def terminal_gallery(
    console: Console, images: Sequence[Tensor], captions: Sequence[str], *, gap: int = 3
) -> Group:
    """Images (H, W) side by side, as many as the console is wide, each with its caption."""
    colour = console.color_system is not None
    drawn = [terminal_image(image, colour=colour) for image in images]
    width = max(max(len(drawn[0][0]), *(len(c) for c in captions)) + gap, 1)
    per_row = max(1, console.width // width)
    lines: list[Text] = []
    for start in range(0, len(drawn), per_row):
        group = drawn[start : start + per_row]
        heads = [Text(c) for c in captions[start : start + per_row]]
        for parts in [heads, *zip(*group, strict=True)]:
            line = Text()
            for part in parts:
                line.append_text(part).append(" " * (width - len(part)))
            lines.append(line)
        lines.append(Text())
    return Group(*lines)


def picture(
    images: Sequence[Tensor], captions: Sequence[str], *, per_row: int = 5, size: int = 128
) -> Image.Image:
    """One image with all of them enlarged, captions beneath."""
    strip = 22
    rows = -(-len(images) // per_row)
    sheet = Image.new("L", (per_row * (size + 12) + 12, rows * (size + strip + 12) + 12), 255)
    draw = ImageDraw.Draw(sheet)
    for k, (image, caption) in enumerate(zip(images, captions, strict=True)):
        x = 12 + (k % per_row) * (size + 12)
        y = 12 + (k // per_row) * (size + strip + 12)
        pixels = (image * 255).round().clamp(0, 255).to(torch.uint8).numpy()
        tile = Image.fromarray(255 - pixels).resize((size, size), Image.Resampling.NEAREST)
        sheet.paste(tile, (x, y))
        draw.text((x, y + size + 4), caption, fill=0, font_size=13)
    return sheet
