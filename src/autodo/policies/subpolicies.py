"""Policies that are lists of sub-policies: AutoAugment's, Fast AutoAugment's, DADA's.

Every image draws one sub-policy, uniformly, and goes through its operations in order: each with
its probability, with a value that the list fixes, and for some a random sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Generator, Tensor

from autodo.policies.operations import IDENTITY, NEUTRAL, NUMBER, Steps
from autodo.policies.policy import StepPolicy, choose, signs, uniform


@dataclass(frozen=True)
class Entry:
    """One operation of a sub-policy."""

    operation: str
    probability: float
    value: float
    signed: bool
    """Whether the value may as well lie on the other side of the one that changes nothing."""


@dataclass(frozen=True, repr=False)
class SubPolicies(StepPolicy):
    """A list of sub-policies; ``spec`` is the text that names it.

    >>> always = SubPolicies("mine", ((Entry("Invert", 1.0, 0.0, False),),))
    >>> always(torch.tensor([[[[0.0, 0.2, 1.0]]]]), torch.Generator())
    tensor([[[[1.0000, 0.8000, 0.0000]]]])
    """

    spec: str
    subpolicies: tuple[tuple[Entry, ...], ...]

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """Names of all operations in the list; every one can be left out."""
        entries = (entry for row in self.subpolicies for entry in row)
        return tuple({IDENTITY: None} | {entry.operation: None for entry in entries})

    @cached_property
    def length(self) -> int:
        """That of the longest sub-policy."""
        return max(map(len, self.subpolicies))

    def draw(self, count: int, size: tuple[int, int], generator: Generator) -> Steps:
        """A sub-policy for each of ``count`` images: which of its operations, with which sign."""
        number, probability, value, other_side = self._columns
        length = number.shape[1]
        numbers = uniform(generator, count, 1 + 4 * length)
        chosen = choose(numbers[:, 0], len(number))
        gate, sign, x, y = numbers[:, 1:].view(count, 4, length).unbind(1)
        operation = torch.where(gate < probability[chosen], number[chosen], NUMBER[IDENTITY])
        value = torch.where(signs(sign) > 0, value[chosen], other_side[chosen])
        return Steps(operation, value, torch.stack((x, y), dim=-1))

    def __repr__(self) -> str:
        return self.spec

    @cached_property
    def _columns(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Numbers, probabilities, values, and values of the other sign, (P, L) each.

        A sub-policy that is shorter than the longest ends in operations that never happen.
        """
        never = Entry(IDENTITY, 0.0, 0.0, False)
        rows = [(*row, *[never] * (self.length - len(row))) for row in self.subpolicies]
        number = torch.tensor([[NUMBER[entry.operation] for entry in row] for row in rows])
        columns = [
            [(entry.probability, entry.value, _other_side(entry)) for entry in row] for row in rows
        ]
        probability, value, other = torch.tensor(columns, dtype=torch.float64).unbind(-1)
        return number, probability, value, other


def _other_side(entry: Entry) -> float:
    return 2 * NEUTRAL[entry.operation] - entry.value if entry.signed else entry.value
