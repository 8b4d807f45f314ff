"""A small convolutional network for small images: quick on a laptop, CELU as in the paper.

Three convolutions of width c, c, 2c with batch normalisation and two poolings, then a linear
head on the (adaptively pooled) 2 x 2 map. CELU grows with its input, so the largest of some CELUs
is the CELU of the largest: it comes after the poolings, where there are fewer. Pixels are
normalised inside, so the saved weights are all a user needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from autodo.models.normalize import Normalize


def _normed(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]


class SmallCNN(nn.Module):
    """Images (B, C, H, W) of at least 8 x 8 to logits (B, num_classes).

    >>> import torch
    >>> SmallCNN(1, 10)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        channels: int,
        num_classes: int,
        *,
        width: int = 32,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.normalize = Normalize.of(channels, mean, std)
        self.features = nn.Sequential(
            *_normed(channels, width),
            nn.CELU(),
            *_normed(width, width),
            nn.MaxPool2d(2),
            nn.CELU(),
            *_normed(width, 2 * width),
            nn.AdaptiveMaxPool2d(2),
            nn.CELU(),
            nn.Flatten(),
        )
        self.fc = nn.Linear(8 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(self.normalize(x)))
