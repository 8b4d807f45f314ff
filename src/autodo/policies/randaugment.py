"""RandAugment: n operations drawn uniformly, all of one magnitude m.

The operations and ranges are those of the paper's comparison. An operation with the range
[low, high] gets the value

    low + u m/30 (high - low),     u ~ Uniform[0, 1],

and the geometric ones a random sign. AutoDO learns the geometric ones itself; beside it only the
others stay ("colour").
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Generator, Tensor

from autodo.errors import InputError
from autodo.policies.operations import GEOMETRIC, IDENTITY, NUMBER, SIGNED, Steps
from autodo.policies.policy import StepPolicy, choose, signs, uniform

MAX_MAGNITUDE = 30

RANGES = {
    IDENTITY: (0.0, 0.0),
    "AutoContrast": (0.0, 0.0),
    "Equalize": (0.0, 0.0),
    "Invert": (0.0, 0.0),
    "Color": (0.1, 1.9),
    "Sharpness": (0.1, 1.9),
    "Rotate": (0.0, 30.0),  # degrees
    "ShearX": (0.0, 0.3),
    "ShearY": (0.0, 0.3),
    "TranslateX": (0.0, 0.45),  # of the width
    "TranslateY": (0.0, 0.45),  # of the height
}
"""[low, high] of every operation; (0, 0) where there is no value."""


@dataclass(frozen=True, repr=False)
class RandAugment(StepPolicy):
    """RandAugment(n, m); ``geometric=False`` leaves out what moves pixels.

    >>> RandAugment(3, 7), RandAugment(1, 15, geometric=False)
    (randaugment:3,7, randaugment:1,15,colour)
    >>> images = torch.rand(4, 3, 8, 8)
    >>> RandAugment(3, 7)(images, torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 8, 8])
    """

    n: int
    """How many operations each image gets; the same may be drawn again."""
    m: float
    """Magnitude, 0 to 30."""
    geometric: bool = True
    """Whether rotation, shears and translations are among the operations."""

    def __post_init__(self) -> None:
        if self.n < 1 or not 0 <= self.m <= MAX_MAGNITUDE:
            raise InputError(
                f"RandAugment cannot have n={self.n!r}, m={self.m!r}",
                f"n counts operations from 1, m is a magnitude from 0 to {MAX_MAGNITUDE}",
                'write for example "randaugment:3,7"',
            )

    @property
    def operations(self) -> tuple[str, ...]:
        """Names of the operations that are drawn, equally often."""
        return tuple(name for name in RANGES if self.geometric or name not in GEOMETRIC)

    @property
    def length(self) -> int:
        """n."""
        return self.n

    def draw(self, count: int, size: tuple[int, int], generator: Generator) -> Steps:
        """n operations with their values for ``count`` images."""
        number, low, span, signed = self._columns
        chosen, strength, sign = uniform(generator, count, self.n, 3).unbind(-1)
        k = choose(chosen, len(number))
        value = low[k] + strength * (self.m / MAX_MAGNITUDE) * span[k]
        value = torch.where(signed[k], signs(sign) * value, value)
        return Steps(number[k], value, torch.zeros(count, self.n, 2, dtype=torch.float64))

    def __repr__(self) -> str:
        return f"randaugment:{self.n},{self.m:g}" + ("" if self.geometric else ",colour")

    @cached_property
    def _columns(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Number, low, high - low, and whether the sign is drawn, of every operation."""
        names = self.operations
        low, high = torch.tensor([RANGES[name] for name in names], dtype=torch.float64).T
        signed = torch.tensor([name in SIGNED for name in names])
        return torch.tensor([NUMBER[name] for name in names]), low, high - low, signed


PUBLISHED = {
    "svhn": RandAugment(3, 7),
    "cifar": RandAugment(3, 15),
    "imagenet": RandAugment(2, 9),
}
"""The RAA rows of the paper's tables, by dataset ("cifar" is CIFAR-10 and CIFAR-100)."""

WITH_AUTODO = {
    "svhn": RandAugment(3, 7, geometric=False),
    "cifar": RandAugment(1, 15, geometric=False),
    "imagenet": RandAugment(2, 9, geometric=False),
}
"""What stays of RandAugment in the paper's rows of AutoDO."""
