"""The mean of each channel over its pixels, before a head."""

from __future__ import annotations

import torch
from torch import Tensor


def pooled(x: Tensor) -> Tensor:
    """(B, C) of (B, C, H, W).

    Where x is in channels-last layout, as on CUDA, so is its gradient; that of ``x.mean((2, 3))``
    would have to be copied into it, which takes 25 microseconds of a step of WRN-16-4.

    >>> pooled(torch.tensor([1.0, 3.0]).reshape(1, 1, 2, 1))
    tensor([[2.]])
    """
    if x.is_contiguous(memory_format=torch.channels_last):
        return x.permute(0, 2, 3, 1).flatten(1, 2).mean(1)
    return x.mean((2, 3))
