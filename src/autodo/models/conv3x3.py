"""A 3x3 convolution that is faster than cuDNN's where a network of ours spends its time.

cuDNN cuts the outputs of a layer into tiles of 64 or 128; a wide residual network has 160, 320 and
640, and begins with layers of 3 and 16 inputs, which hardly fill a tile. On Hopper, in bfloat16,
``conv3x3_cuda`` has tiles of 160 and ``conv3x3_triton`` takes all numbers around a pixel at once.
Anywhere else it is nn.Conv2d, which is also the oracle of the tests; weights are its own, under its
name.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from autodo.cuda import is_hopper
from autodo.kernels import has_triton


class Conv3x3(nn.Conv2d):
    """3x3, stride 1, padded by 1, without biases.

    >>> Conv3x3(2, 4)(torch.zeros(1, 2, 5, 5)).shape
    torch.Size([1, 4, 5, 5])
    """

    fast = True
    """Use our kernels where they can run; False is for comparisons."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """y: (B, outputs, H, W)."""
        if self.fast and rounds(x) and is_hopper(x.device):
            from autodo.models import conv3x3_cuda

            if conv3x3_cuda.fits(x, self.weight):
                return conv3x3_cuda.convolution(x, self.weight)
            if has_triton():
                from autodo.models import conv3x3_triton

                if conv3x3_triton.fits(x, self.weight):
                    return conv3x3_triton.convolution(x, self.weight)
        return super().forward(x)


def rounds(x: Tensor) -> bool:
    """Whether a convolution of x would round it and its weights to bfloat16 (and is not traced)."""
    return (
        x.is_cuda
        and not torch.compiler.is_compiling()
        and x.dtype in (torch.bfloat16, torch.float32)
        and torch.is_autocast_enabled("cuda")
        and torch.get_autocast_dtype("cuda") == torch.bfloat16
    )
