"""Wide residual networks WRN-d-k for 32x32 images, as the paper trains them.

Pre-activation blocks (normalisation, activation, convolution), three stages of (d - 4) / 6
blocks with widths 16k, 32k, 64k, global average pooling, a linear head. CELU instead of ReLU,
so that the network is continuously differentiable; convolutions have biases.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from autodo.errors import InputError
from autodo.models.normalize import Normalize


class Block(nn.Module):
    """Two pre-activated 3x3 convolutions around a skip connection."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, stride=stride, padding=1)
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.skip = nn.Conv2d(inputs, outputs, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(F.celu(self.bn1(x)))
        out = self.conv2(F.celu(self.bn2(out)))
        return out + self.skip(x)


class WideResNet(nn.Module):
    """WRN-depth-width.

    >>> import torch
    >>> WideResNet(10, 1, channels=3, num_classes=10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        depth: int,
        width: int,
        *,
        channels: int,
        num_classes: int,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.check(depth, width)
        blocks = (depth - 4) // 6
        self.normalize = Normalize.of(channels, mean, std)
        self.stem = nn.Conv2d(channels, 16, 3, padding=1)
        stages: list[nn.Module] = []
        inputs = 16
        for stage, outputs in enumerate((16 * width, 32 * width, 64 * width)):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                stages.append(Block(inputs, outputs, stride))
                inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.bn = nn.BatchNorm2d(inputs)
        self.fc = nn.Linear(inputs, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    @staticmethod
    def check(depth: int, width: int) -> None:
        """Raise unless there is a WRN of this depth and width."""
        if depth < 10 or (depth - 4) % 6:
            raise InputError(
                f"WRN depth is {depth}", "it must be 6n + 4", "use 10, 16, 22, 28 or 40"
            )
        if width < 1:
            raise InputError(f"WRN width is {width}", "it must be 1 or more", "use 1, 4 or 10")

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(self.normalize(x)))
        x = F.celu(self.bn(x))
        return self.fc(x.mean((2, 3)))
