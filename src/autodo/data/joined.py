"""Train and trusted as one set, for the runs in which the trusted points are trained on too."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from autodo.data.examples import Examples, concatenate
from autodo.data.map_images import MapImages
from autodo.data.pixels import to_unit


@dataclass(frozen=True, eq=False)
class Joined:
    """The examples of ``first``, then those of ``second``, read item by item."""

    first: Examples | MapImages
    second: Examples | MapImages

    @property
    def labels(self) -> Tensor:
        """(N + M,), int64."""
        return torch.cat([self.first.labels, self.second.labels])

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        split = len(self.first)
        image, label = self.first[i] if i < split else self.second[i - split]
        return to_unit(image), label


def join(first: Examples | MapImages, second: Examples | MapImages) -> Examples | Joined:
    """Both sets as one: in memory if both are."""
    if isinstance(first, Examples) and isinstance(second, Examples):
        return concatenate(first, second)
    return Joined(first, second)
