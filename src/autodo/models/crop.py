"""The centre of an image: what a network is tested on whose training images were cropped."""

from __future__ import annotations

from torch import Tensor, nn


class CentreCrop(nn.Module):
    """Cuts images (B, C, H, W) to the ``size`` pixels a side at their centre.

    Smaller images pass as they are, so a training policy that crops to ``size`` is left alone.

    >>> import torch
    >>> CentreCrop(2)(torch.arange(16).view(1, 1, 4, 4)).flatten().tolist()
    [5, 6, 9, 10]
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        top, left = (max(0, (side - self.size) // 2) for side in x.shape[-2:])
        return x[..., top : top + self.size, left : left + self.size]
