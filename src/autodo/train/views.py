"""Views of an image that a network is asked about, and what it makes of them on average.

What a network says of an image changes when the image moves by a pixel, or is mirrored where that
makes no other class of it. The mean over such views is nearer to the truth than one of them, and
costs passes without gradients only. Views are the image as it is and moved a little along a
diagonal to both sides, each in all the ways that its symmetry allows (``hyper.symmetry``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from autodo.hyper.symmetry import changes

STEP = 32
"""Images move by one pixel in so many, and by one at least."""
LEAST_SIDE = 16
"""Smaller images do not move: a pixel is too much of them."""


def averaged(encode: Callable[[Tensor], Tensor], level: int) -> Callable[[Tensor], Tensor]:
    """``encode``, images (B, C, H, W) to features (B, D), as a mean over the views of an image.

    ``level`` is the place of the images' symmetry in ``SYMMETRIES``.
    """

    def mean(images: Tensor) -> Tensor:
        return torch.stack([encode(view) for view in views(images, level)]).mean(0)

    return mean


def views(images: Tensor, level: int) -> Iterator[Tensor]:
    """Images (B, C, H, W) in each of their views, as they are first.

    >>> len(list(views(torch.rand(2, 3, 32, 32), 1))), len(list(views(torch.rand(2, 3, 8, 8), 0)))
    (6, 1)
    """
    ways = [images]
    for change in changes(level, (images.shape[-2], images.shape[-1])).values():
        ways += [change(way) for way in ways]
    for way in ways:
        yield from _moved(way)


def _moved(images: Tensor) -> Iterator[Tensor]:
    """Images where they are, and moved along the diagonal to both sides; edges are repeated."""
    yield images
    height, width = images.shape[-2:]
    if min(height, width) < LEAST_SIDE:
        return
    down, right = (max(1, side // STEP) for side in (height, width))
    padded = F.pad(images, (right, right, down, down), mode="replicate")
    yield padded[..., 2 * down :, 2 * right :]
    yield padded[..., :height, :width]
