"""The reweighting sub-model g_W: how much each point counts, w = softplus(W) / ln 2."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def initial_weight_logits(count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """W = 0 for every point, which is weight 1: (N, 1)."""
    return torch.zeros(count, 1, dtype=dtype)


def weights(weight_logits: Tensor) -> Tensor:
    """w of each point; any shape.

    >>> weights(torch.zeros(2))
    tensor([1., 1.])
    """
    return F.softplus(weight_logits) / math.log(2)
