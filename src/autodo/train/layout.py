"""The layout in memory in which a network takes its images.

Convolutions, normalisations and pooling are faster with the channels of a pixel side by side, on a
GPU and on a CPU. A network that flattens its maps by ``view`` cannot take them so.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from autodo.train.hyper_optimizer import evaluating


def give_layout(model: nn.Module, images: Tensor) -> torch.memory_format:
    """Bring the network's weights into the fastest layout in which it takes images (B, C, H, W).

    >>> from torch.nn import Conv2d, Flatten, Sequential, Unflatten
    >>> give_layout(Sequential(Conv2d(1, 2, 3), Flatten()), torch.zeros(2, 1, 8, 8))
    torch.channels_last
    """
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    try:
        with torch.no_grad(), evaluating(model):
            model(images.contiguous(memory_format=torch.channels_last))
    except RuntimeError:
        model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        return torch.contiguous_format
    return torch.channels_last
