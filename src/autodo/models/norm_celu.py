"""Batch normalisation and CELU as one layer, with the addition of a residual before them.

    s = x + residual,   y = celu(batch_norm(s))

A wide residual network on a fast GPU is bound by memory in just these steps. On CUDA, in
channels-last layout, they run as three passes forward and two backward over the data (Triton
kernels in ``norm_celu_triton``); anywhere else as the plain torch operations, which are also the
oracle of the tests. Parameters and buffers are those of nn.BatchNorm2d, under its names.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autodo.kernels import has_triton

FUSED_TYPES = (torch.bfloat16, torch.float16, torch.float32)


class NormCELU(nn.BatchNorm2d):
    """celu(batch_norm(x + residual)); without a residual celu(batch_norm(x)).

    >>> layer = NormCELU(2).eval()
    >>> layer(torch.tensor([1.0, -1.0]).reshape(1, 2, 1, 1)).detach().flatten()
    tensor([ 1.0000, -0.6321])
    """

    fused = True
    """Use the fused kernels where they can run; False is for comparisons."""

    def forward(self, x: Tensor) -> Tensor:
        """y: (B, C, H, W)."""
        if self._can_fuse(x):
            return self._kernels().norm_celu(self, x, None)[1]
        return F.celu(super().forward(x))

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """(s, y), each (B, C, H, W): the sum itself goes on along the skip connection."""
        if self._can_fuse(x) and residual.dtype == x.dtype and _channels_last(residual):
            return self._kernels().norm_celu(self, x, residual)
        s = x + residual
        return s, self(s)

    def _can_fuse(self, x: Tensor) -> bool:
        """In eval mode the kernels know no gradient of weight and bias."""
        return (
            self.fused
            and x.is_cuda
            and x.dtype in FUSED_TYPES
            and _channels_last(x)
            and (self.training or not (torch.is_grad_enabled() and self.weight.requires_grad))
            and has_triton()
        )

    @staticmethod
    def _kernels():  # type: ignore[no-untyped-def]
        from autodo.models import norm_celu_triton

        return norm_celu_triton


def _channels_last(x: Tensor) -> bool:
    return x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
