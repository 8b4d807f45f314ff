"""TrivialAugment: one operation of a random strength, nothing to tune.

The wide ranges of the authors' code, in 31 strengths k = 0 .. 30 that are equally likely. What is
counted there in whole numbers (degrees, pixels, grey levels, bits) is so here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Generator, Tensor

from autodo.policies.operations import IDENTITY, NUMBER, SIGNED, Steps
from autodo.policies.policy import StepPolicy, choose, signs, uniform

STRENGTHS = 31

RANGES: dict[str, tuple[float, float]] = {
    IDENTITY: (0.0, 0.0),
    "AutoContrast": (0.0, 0.0),
    "Equalize": (0.0, 0.0),
    "Rotate": (0.0, 135.0),  # degrees
    "Solarize": (256.0, 0.0),
    "Color": (0.01, 2.0),
    "Posterize": (8.0, 2.0),
    "Contrast": (0.01, 2.0),
    "Brightness": (0.01, 2.0),
    "Sharpness": (0.01, 2.0),
    "ShearX": (0.0, 0.99),
    "ShearY": (0.0, 0.99),
    "TranslateX": (0.0, 32.0),  # pixels, whatever the size of the image
    "TranslateY": (0.0, 32.0),
}
"""Values at strength 0 and at strength 30; (0, 0) where there is none."""

WHOLE = ("Rotate", "Solarize", "Posterize", "TranslateX", "TranslateY")
"""Operations whose distance from strength 0 is cut to a whole number."""


@dataclass(frozen=True, repr=False)
class TrivialAugment(StepPolicy):
    """One of 14 operations per image, strength and sign at random.

    >>> TrivialAugment()
    trivialaugment
    """

    @property
    def operations(self) -> tuple[str, ...]:
        """Names of the operations that are drawn, equally often."""
        return tuple(RANGES)

    @property
    def length(self) -> int:
        """One."""
        return 1

    def draw(self, count: int, size: tuple[int, int], generator: Generator) -> Steps:
        """One operation with its value for each of ``count`` images."""
        height, width = size
        number, first, span, whole, signed = self._columns
        extents = {"TranslateX": width, "TranslateY": height}
        extent = torch.tensor([extents.get(name, 1) for name in RANGES], dtype=torch.float64)

        chosen, strength, sign = uniform(generator, count, 1, 3).unbind(-1)
        k = choose(chosen, len(RANGES))
        distance = span[k] * choose(strength, STRENGTHS) / (STRENGTHS - 1)
        distance = torch.where(whole[k], distance.trunc(), distance)
        value = (first[k] + distance) / extent[k]
        value = torch.where(signed[k], signs(sign) * value, value)
        return Steps(number[k], value, torch.zeros(count, 1, 2, dtype=torch.float64))

    def __repr__(self) -> str:
        return "trivialaugment"

    @cached_property
    def _columns(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Number, first value, last - first, whether whole, and signed, of every operation."""
        number = torch.tensor([NUMBER[name] for name in RANGES])
        first, last = torch.tensor(list(RANGES.values()), dtype=torch.float64).T
        whole = torch.tensor([name in WHOLE for name in RANGES])
        signed = torch.tensor([name in SIGNED for name in RANGES])
        return number, first, last - first, whole, signed
