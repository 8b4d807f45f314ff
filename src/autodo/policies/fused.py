"""When a batch is augmented by one kernel of ``fused_triton`` instead of many calls of torch."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from autodo.kernels import has_triton

LARGEST = 4096
"""Pixels up to which a kernel holds an image, 64 x 64; 0 means no kernels, for comparisons."""


def kernels(images: Tensor) -> ModuleType | None:
    """The module of the kernels where they can augment ``images`` (B, C, H, W), else None.

    >>> kernels(torch.rand(2, 3, 8, 8)) is None  # on a CPU
    True
    """
    can = (
        images.is_cuda
        and images.dtype == torch.float32
        and not images.requires_grad
        and 0 < images.shape[-2] * images.shape[-1] <= LARGEST
        and len(images) > 0
        and has_triton()
    )
    if not can:
        return None
    from autodo.policies import fused_triton

    return fused_triton
