"""What a policy is: fixed rules by which images are augmented, drawn anew for every batch.

All random numbers come from one generator in one call per batch, on the host, and the decisions
they lead to are made there: a seed gives the same images on every device, and no device is waited
for. A policy can be carried out in two ways with one result: by a call, which does the least work,
or in the two parts of :class:`Planned`, of which the second is the same for every batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Generator, Tensor

from autodo.policies import whole
from autodo.policies.operations import Steps, apply


@runtime_checkable
class Policy(Protocol):
    """Augments a batch. ``repr`` is the text from which ``policies.get`` makes it again."""

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """Augment ``images``, floating-point (B, C, H, W) in [0, 1], C = 1 or 3."""
        ...


@runtime_checkable
class Planned(Protocol):
    """A policy in two parts: what chance decides, on the host, and what is done to the images.

    The second part makes the same calls with the same shapes for all batches of one shape, on the
    device alone: it can be recorded.
    """

    @property
    def width(self) -> int:
        """Columns of a plan, K."""
        ...

    def plan(self, count: int, size: tuple[int, int], generator: Generator) -> Tensor:
        """What ``count`` images of ``size`` (H, W) go through: (count, K) int64 on the host."""
        ...

    def carry_out(self, images: Tensor, plan: Tensor) -> Tensor:
        """``images`` (B, C, H, W) in [0, 1], augmented by their ``plan`` (B, K) on their device."""
        ...

    def size_after(self, size: tuple[int, int]) -> tuple[int, int]:
        """(H, W) of augmented images of ``size``."""
        ...


class StepPolicy(ABC):
    """A policy that puts every image through a few operations, one after the other."""

    @property
    @abstractmethod
    def operations(self) -> tuple[str, ...]:
        """Names of the operations that can be drawn."""

    @property
    @abstractmethod
    def length(self) -> int:
        """How many steps an image goes through."""

    @abstractmethod
    def draw(self, count: int, size: tuple[int, int], generator: Generator) -> Steps:
        """What ``count`` images of ``size`` (H, W) go through."""

    @property
    def width(self) -> int:
        """Columns of a plan."""
        return whole.width(self.operations, self.length)

    def plan(self, count: int, size: tuple[int, int], generator: Generator) -> Tensor:
        """What ``draw`` gives, as a table (count, K) int64."""
        return whole.plan(self.draw(count, size, generator), self.operations, size)

    def carry_out(self, images: Tensor, plan: Tensor) -> Tensor:
        """``images`` after the steps of their ``plan``, every operation on the whole batch."""
        return whole.carry_out(images, plan, self.operations, self.length)

    def size_after(self, size: tuple[int, int]) -> tuple[int, int]:
        """The same: no operation changes the size."""
        return size

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """``images`` (B, C, H, W) in [0, 1] after the drawn operations, as levels k/255."""
        height, width = images.shape[-2:]
        return apply(images, self.draw(len(images), (height, width), generator))


@dataclass(frozen=True, repr=False)
class Chain:
    """Policies one after the other; without any, the images stay as they are.

    >>> Chain()
    none
    """

    policies: tuple[Policy, ...] = ()

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """``images`` after every policy in turn."""
        for policy in self.policies:
            images = policy(images, generator)
        return images

    def __repr__(self) -> str:
        return "+".join(map(repr, self.policies)) or "none"


@dataclass(frozen=True)
class PlannedChain:
    """The two parts of policies that are carried out one after the other, with one plan."""

    policies: tuple[Planned, ...]

    @property
    def width(self) -> int:
        """Columns of a plan: those of all policies, side by side."""
        return sum(policy.width for policy in self.policies)

    def plan(self, count: int, size: tuple[int, int], generator: Generator) -> Tensor:
        """What ``count`` images go through, in the order in which a chain draws it."""
        plans = []
        for policy in self.policies:
            plans.append(policy.plan(count, size, generator))
            size = policy.size_after(size)
        return torch.cat(plans, dim=1)

    def carry_out(self, images: Tensor, plan: Tensor) -> Tensor:
        """``images`` after every policy in turn."""
        parts = plan.split([policy.width for policy in self.policies], dim=1)
        for policy, part in zip(self.policies, parts, strict=True):
            images = policy.carry_out(images, part)
        return images

    def size_after(self, size: tuple[int, int]) -> tuple[int, int]:
        """(H, W) after the last policy."""
        for policy in self.policies:
            size = policy.size_after(size)
        return size


def planned(policy: Policy) -> Planned | None:
    """``policy`` in two parts, or None: for a policy of other making, and where nothing is done.

    >>> planned(Chain()) is None
    True
    """
    if isinstance(policy, Chain):
        parts = tuple(map(planned, policy.policies))
        known = tuple(part for part in parts if part is not None)
        return PlannedChain(known) if known and len(known) == len(parts) else None
    return policy if isinstance(policy, Planned) else None


def uniform(generator: Generator, *shape: int) -> Tensor:
    """Numbers in [0, 1) on the host, float64; a generator of the host is never waited for."""
    numbers = torch.rand(shape, generator=generator, device=generator.device)
    return numbers.cpu().double()


def choose(uniform: Tensor, count: int) -> Tensor:
    """Uniform numbers as integers 0 .. ``count`` - 1, equally likely.

    >>> choose(torch.tensor([0.0, 0.49, 0.5, 0.99]), 2)
    tensor([0, 0, 1, 1])
    """
    return (uniform * count).long().clamp_max(count - 1)


def signs(uniform: Tensor) -> Tensor:
    """Uniform numbers as -1 or 1, equally likely."""
    return torch.where(uniform < 0.5, -1.0, 1.0)
