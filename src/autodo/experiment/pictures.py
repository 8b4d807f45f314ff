"""What a run found, drawn for people: in the terminal, and as one PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def bars(values: Mapping[str, float], *, width: int, strong: str) -> Image.Image:
    """Horizontal bars of fractions, written in percent; the bar ``strong`` in colour."""
    row, left = 34, 270
    sheet = Image.new("RGB", (width, row * len(values)), "white")
    draw = ImageDraw.Draw(sheet)
    longest = max(max(values.values()), 1e-9)
    for k, (name, value) in enumerate(values.items()):
        y = row * k
        middle = y + row / 2
        draw.text((left - 12, middle), name, fill="black", font_size=16, anchor="rm")
        length = value / longest * (width - left - 70)
        colour = "#0b6e4f" if name == strong else "#9aa5b1"
        draw.rectangle((left, y + 6, left + max(length, 1), y + row - 6), fill=colour)
        draw.text(
            (left + length + 8, middle), f"{value:.1%}", fill="black", font_size=16, anchor="lm"
        )
    return sheet


def gallery(images: Sequence[Tensor], captions: Sequence[str], *, width: int) -> Image.Image:
    """Grey images (H, W) enlarged, dark on light, five in a row, captions beneath."""
    per_row, gap, strip = 5, 12, 26
    size = (width - gap * (per_row - 1)) // per_row
    rows = -(-len(images) // per_row)
    sheet = Image.new("RGB", (width, rows * (size + strip + gap)), "white")
    draw = ImageDraw.Draw(sheet)
    for k, (image, caption) in enumerate(zip(images, captions, strict=True)):
        x, y = (k % per_row) * (size + gap), (k // per_row) * (size + strip + gap)
        pixels = (image * 255).round().clamp(0, 255).to(torch.uint8).numpy()
        tile = Image.fromarray(255 - pixels).resize((size, size), Image.Resampling.NEAREST)
        sheet.paste(tile, (x, y))
        draw.rectangle((x, y, x + size - 1, y + size - 1), outline="#9aa5b1")
        draw.text((x + size / 2, y + size + 5), caption, fill="black", font_size=16, anchor="mt")
    return sheet


def sheet(parts: Sequence[tuple[str, Image.Image]], *, margin: int = 24) -> Image.Image:
    """Pictures one beneath the other, each under its title."""
    title = 36
    width = max(part.width for _, part in parts) + 2 * margin
    height = margin + sum(title + part.height + margin for _, part in parts)
    whole = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(whole)
    y = margin
    for text, part in parts:
        draw.text((margin, y), text, fill="black", font_size=20)
        whole.paste(part, (margin, y + title))
        y += title + part.height + margin
    return whole
