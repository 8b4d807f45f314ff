"""Pixels normalised inside the network, so that the saved weights are all a user needs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from autodo.data.pixels import to_unit

_PART = 1024  # images turned to floating point at a time: bounds the temporary memory


class Normalize(nn.Module):
    """(x - mean) / std per channel, kept with the weights."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    @classmethod
    def of(
        cls, channels: int, mean: Sequence[float] | None, std: Sequence[float] | None
    ) -> Normalize:
        """With the identity for what is not given."""
        return cls(mean or [0.0] * channels, std or [1.0] * channels)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


def pixel_statistics(images: Tensor) -> tuple[list[float], list[float]]:
    """Mean and deviation per channel of images (N, C, H, W), uint8 or in [0, 1].

    >>> pixel_statistics(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1))
    ([0.5], [0.5])
    """
    total, squares = (torch.zeros(images.shape[1], dtype=torch.float64) for _ in range(2))
    for part in images.split(_PART):
        pixels = to_unit(part).double().cpu()
        total += pixels.sum((0, 2, 3))
        squares += pixels.square().sum((0, 2, 3))
    count = images[:, 0].numel()
    mean = total / count
    # A channel that never changes has no deviation to divide by.
    std = (squares / count - mean.square()).clamp_min(1e-4).sqrt()
    return mean.tolist(), std.tolist()
