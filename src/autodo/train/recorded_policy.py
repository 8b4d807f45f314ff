"""A policy whose work on the device is recorded as a CUDA graph.

Augmenting a small batch by calls is some hundreds of short kernels, and launching them one by one
takes the host longer than a fast GPU needs for its step. Here the host draws what becomes of
a batch, sends it in one pinned transfer and replays what was recorded: one kernel for each policy
of a chain where ``policies.fused`` covers it, else the calls of ``policies.whole``. The images are
those of the policy.
Elsewhere than on CUDA the policy is simply called: there it is the work that counts, not the calls.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from math import prod

import torch
from torch import Generator, Tensor

from autodo.policies import Planned, Policy, planned
from autodo.train.recorded import Recorded

LARGEST = 1 << 22
"""Numbers in a batch, before or after, up to which it pays: 1,365 RGB images of 32 x 32.

Larger batches keep the device busy long enough, and every operation would be done to all of their
images."""


class RecordedPolicy:
    """``policy``, recorded for batches of certain ``sizes``; the others are augmented by a call.

    >>> from autodo import policies
    >>> policy = RecordedPolicy(policies.get("trivialaugment"), torch.device("cpu"), sizes={4})
    >>> policy(torch.rand(4, 3, 8, 8), torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 8, 8])
    """

    def __init__(
        self, policy: Policy, device: torch.device, *, sizes: Collection[int], enabled: bool = True
    ) -> None:
        self.policy, self.device, self.sizes = policy, device, frozenset(sizes)
        on = enabled and device.type == "cuda"
        self._planned: Planned | None = planned(policy) if on else None
        self._recorded: dict[tuple[torch.Size, torch.dtype], Recorded] = {}
        self._done: torch.cuda.Event | None = None

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """``images`` (B, C, H, W) in [0, 1], augmented."""
        recorded = self._recorded_for(images)
        if self._planned is None or recorded is None:
            return self.policy(images, generator)
        height, width = images.shape[-2:]
        plan = self._planned.plan(len(images), (height, width), generator).pin_memory()
        # A recording has one memory, and batches may be prepared on several streams.
        here = torch.cuda.current_stream(self.device)
        if self._done is not None:
            here.wait_event(self._done)
        (images,) = recorded(images, plan)
        self._done = here.record_event()
        return images

    def __repr__(self) -> str:
        return repr(self.policy)

    def _recorded_for(self, images: Tensor) -> Recorded | None:
        """The recording, perhaps still to be made, for batches like ``images``."""
        if self._planned is None or images.dim() != 4 or len(images) not in self.sizes:
            return None
        height, width = images.shape[-2:]
        after = prod(images.shape[:2]) * prod(self._planned.size_after((height, width)))
        if not images.is_cuda or max(images.numel(), after) > LARGEST:
            return None
        kind = (images.shape, images.dtype)
        if kind not in self._recorded:
            step = partial(_carry_out, self._planned)
            self._recorded[kind] = Recorded(step, self.device)
        recorded = self._recorded[kind]
        return recorded if recorded.enabled else None


def _carry_out(policy: Planned, images: Tensor, plan: Tensor) -> tuple[Tensor]:
    # A plan that is recorded with is on the device already.
    return (policy.carry_out(images, plan.to(images.device, non_blocking=True)),)
