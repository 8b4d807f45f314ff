"""A 1x1 convolution along a skip connection, faster than cuDNN's where ours can run.

In bfloat16 and channels-last layout on Hopper ``conv1x1_triton`` reads and writes each number once.
Anywhere else it is nn.Conv2d, which is also the oracle of the tests; weights are its own, under its
name.
"""

from __future__ import annotations

from torch import Tensor, nn

from autodo.cuda import is_hopper
from autodo.kernels import has_triton
from autodo.models.conv3x3 import rounds


class Conv1x1(nn.Conv2d):
    """1x1, with a stride, without biases.

    >>> import torch
    >>> Conv1x1(2, 4, 2)(torch.zeros(1, 2, 5, 5)).shape
    torch.Size([1, 4, 3, 3])
    """

    fast = True
    """Use our kernels where they can run; False is for comparisons."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """y: (B, outputs, H / stride, W / stride), rounded up."""
        if self.fast and rounds(x) and is_hopper(x.device) and has_triton():
            from autodo.models import conv1x1_triton

            if conv1x1_triton.fits(x, self.weight, self.stride[0]):
                return conv1x1_triton.convolution(x, self.weight, self.stride[0])
        return super().forward(x)
