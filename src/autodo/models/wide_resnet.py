"""Wide residual networks WRN-d-k for 32x32 images, as the paper trains them.

Pre-activation blocks (normalisation, activation, convolution), three stages of (d - 4) / 6
blocks with widths 16k, 32k, 64k, global average pooling, a linear head. CELU instead of ReLU,
so that the network is continuously differentiable. The published network gives its convolutions
biases; here they have none, for a normalisation follows every one of them, along the skip
connection too, and subtracts what a bias adds: the function is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from autodo.errors import InputError
from autodo.models.conv1x1 import Conv1x1
from autodo.models.conv3x3 import Conv3x3
from autodo.models.norm_celu import NormCELU
from autodo.models.normalize import Normalize
from autodo.models.pool import pooled


class Block(nn.Module):
    """Two pre-activated 3x3 convolutions around a skip connection.

    A block hands on its two branches unadded: the next normalisation adds them in its own pass.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = NormCELU(inputs)
        self.conv1 = Conv3x3(inputs, outputs)
        self.bn2 = NormCELU(outputs)
        self.conv2 = (
            Conv3x3(outputs, outputs)
            if stride == 1
            else nn.Conv2d(outputs, outputs, 3, stride=stride, padding=1, bias=False)
        )
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.skip = Conv1x1(inputs, outputs, stride)

    def forward(self, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        s, out = (x, self.bn1(x)) if residual is None else self.bn1.add(x, residual)
        return self.conv2(self.bn2(self.conv1(out))), self.skip(s)


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
        self.stem = Conv3x3(channels, 16)
        self.stages = nn.ModuleList()
        inputs = 16
        for stage, outputs in enumerate((16 * width, 32 * width, 64 * width)):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                self.stages.append(Block(inputs, outputs, stride))
                inputs = outputs
        self.bn = NormCELU(inputs)
        self.fc = nn.Linear(inputs, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

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
        first, *rest = self.stages
        x, residual = first(self.stem(self.normalize(x)), None)
        for block in rest:
            x, residual = block(x, residual)
        _, x = self.bn.add(x, residual)
        return self.fc(pooled(x))
