"""The soft-label sub-model g_S: what each point's label should be, q = softmax(S).

S starts so that q is exactly the smoothed given label (1 - alpha) onehot(y) + alpha / C:

    S = (onehot(y) - 1/2) log(1 - C + C / alpha)

The paper prints log(1 - C - C/alpha), the logarithm of a negative number: a slip of sign.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from autodo.errors import InputError


def initial_label_logits(
    labels: Tensor,
    num_classes: int,
    smoothing: float = 0.1,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """S of every point: (N, C).

    >>> initial_label_logits(torch.tensor([1]), 4).softmax(-1)
    tensor([[0.0250, 0.9250, 0.0250, 0.0250]])
    """
    if not 0 < smoothing < 1:
        raise InputError(
            f"label smoothing is {smoothing}",
            "soft labels need 0 < smoothing < 1 (0 would put S at infinity, 1 forgets the label)",
            "use 0.1, the paper's value",
        )
    onehot = F.one_hot(labels, num_classes).to(dtype)
    return (onehot - 0.5) * math.log(1 - num_classes + num_classes / smoothing)
