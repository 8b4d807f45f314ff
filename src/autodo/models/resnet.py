"""ResNet-18: four stages of two basic blocks with widths 64, 128, 256, 512.

Two stems: for photographs a 7x7 convolution of stride 2 and a max pooling, for images of
about 32x32 a 3x3 convolution of stride 1 alone, which leaves them their resolution. CELU instead
of ReLU as in the paper, so that the network is continuously differentiable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from autodo.errors import InputError
from autodo.models.normalize import Normalize
from autodo.models.pool import pooled

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"celu": nn.CELU, "relu": nn.ReLU}
STEMS = ("small", "imagenet")
SMALL_IMAGE = 64
"""Up to this side in pixels the small stem is the fitting one."""


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a skip connection, activation after the sum."""

    def __init__(self, inputs: int, outputs: int, stride: int, activation: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.activation = ACTIVATIONS[activation]()
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.skip = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.activation(self.bn1(self.conv1(x)))
        return self.activation(self.bn2(self.conv2(out)) + self.skip(x))


class ResNet18(nn.Module):
    """Images (B, C, H, W) to logits (B, num_classes).

    >>> import torch
    >>> ResNet18(channels=3, num_classes=10, stem="small")(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        channels: int,
        num_classes: int,
        stem: str = "imagenet",
        activation: str = "celu",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        for name, value, choices in (
            ("stem", stem, STEMS),
            ("activation", activation, tuple(ACTIVATIONS)),
        ):
            if value not in choices:
                raise InputError(
                    f"the {name} of ResNet-18 is {value!r}",
                    f"the choices are {', '.join(choices)}",
                    f"use {choices[0]!r}",
                )
        self.normalize = Normalize.of(channels, mean, std)
        self.stem = nn.Sequential(
            nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
            if stem == "imagenet"
            else nn.Conv2d(channels, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            ACTIVATIONS[activation](),
        )
        if stem == "imagenet":
            self.stem.append(nn.MaxPool2d(3, stride=2, padding=1))
        blocks: list[nn.Module] = []
        inputs = 64
        for stage, outputs in enumerate((64, 128, 256, 512)):
            for block in range(2):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(BasicBlock(inputs, outputs, stride, activation))
                inputs = outputs
        self.stages = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(self.normalize(x)))
        return self.fc(pooled(x))
