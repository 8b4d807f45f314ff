"""Brightness, contrast, saturation and hue of each image, differentiable in factor and pixels.

Images are (B, C, H, W) in [0, 1], a factor is (B,). The first three are kornia's ``enhance``
functions of the same meaning as PIL and torchvision (a blend of the image with black, its mean
grey, its own grey); hue is the HSV rotation, written so that grey pixels have finite gradients.
Beyond the paper, whose learned operations are geometric only.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autodo.errors import InputError

GREY = (0.299, 0.587, 0.114)
"""Luma weights of red, green and blue (ITU-R BT.601), as in PIL and kornia."""


def adjust_brightness(images: Tensor, factor: Tensor) -> Tensor:
    """``factor`` * image, clamped to [0, 1]: 0 is black, 1 the image.

    Equals ``kornia.enhance.adjust_brightness_accumulative`` (kornia's ``adjust_brightness`` adds).

    >>> adjust_brightness(torch.tensor([[[[0.2, 0.8]]]]), torch.tensor([1.5]))
    tensor([[[[0.3000, 1.0000]]]])
    """
    return (images * _per_image(factor, images)).clamp(0, 1)


def adjust_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean grey of the image, clamped to [0, 1]: 0 is flat grey, 1 the image.

    Equals ``kornia.enhance.adjust_contrast_with_mean_subtraction``. The mean is of the luma for
    three channels and of all channels otherwise.
    """
    grey = _grey(images) if images.shape[1] == 3 else images
    mean = grey.mean(dim=(1, 2, 3), keepdim=True)
    return _blend(images, mean, factor)


def adjust_saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Blend every pixel with its own grey, clamped to [0, 1]: 0 is grey, 1 the image.

    Equals ``kornia.enhance.adjust_saturation_with_gray_subtraction``. One channel has no colour:
    the image comes back as it is.
    """
    return _blend(images, _grey(images), factor) if _has_colour(images) else images


def adjust_hue(images: Tensor, angle: Tensor) -> Tensor:
    """Turn the hue of every pixel by ``angle`` (B,) radians in HSV space: 0 is the image.

    Equals ``kornia.enhance.adjust_hue``; torchvision's factor is angle / (2 pi). One channel has
    no colour: the image comes back as it is.

    HSV to RGB is value - chroma * ramp(hue) per channel, so turning the hue is

        out = image + chroma * (ramp(hue) - ramp(hue + angle)).

    Written as a difference it is exact at angle 0, and a grey pixel (chroma 0, hue undefined) is
    returned as it is with the gradient of the identity, where HSV itself would divide 0 by 0.

    A third of a turn sends red to green:

    >>> red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    >>> adjust_hue(red, torch.tensor([2 * torch.pi / 3])).flatten().round(decimals=4).tolist()
    [0.0, 1.0, 0.0]
    """
    if not _has_colour(images):
        return images
    highest = images.amax(dim=1, keepdim=True)
    chroma = highest - images.amin(dim=1, keepdim=True)
    red, green, blue = images.split(1, dim=1)
    # Sixths of a turn, from the channel that is highest; red first where two are equal.
    difference, sector = green - blue, torch.zeros_like(highest)
    green_first, blue_first = green > red, blue > torch.maximum(red, green)
    difference = torch.where(green_first, blue - red, difference)
    sector = torch.where(green_first, 2.0, sector)
    difference = torch.where(blue_first, red - green, difference)
    sector = torch.where(blue_first, 4.0, sector)
    # |difference| <= chroma, so the quotient is bounded; its gradient, of the order 1/chroma, is
    # multiplied by chroma below.
    hue = sector + difference / torch.where(chroma > 0, chroma, 1.0)
    phase = hue + torch.tensor((5.0, 3.0, 1.0)).to(images, non_blocking=True).view(1, 3, 1, 1)
    turn = _per_image(angle, images) * (3 / math.pi)
    return images + chroma * (_ramp(phase) - _ramp(phase + turn))


def _ramp(phase: Tensor) -> Tensor:
    """How far a channel lies below the highest, in [0, 1], of a phase in sixths of a turn."""
    phase = torch.remainder(phase, 6)
    return torch.minimum(phase, 4 - phase).clamp(0, 1)


def _blend(images: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    """``other`` at factor 0, ``images`` at factor 1, on the same line beyond; clamped to [0, 1]."""
    factor = _per_image(factor, images)
    return (images * factor + other * (1 - factor)).clamp(0, 1)


def _grey(images: Tensor) -> Tensor:
    """The luma of RGB images, (B, 1, H, W)."""
    red, green, blue = images.split(1, dim=1)
    return GREY[0] * red + GREY[1] * green + GREY[2] * blue


def _per_image(factor: Tensor, images: Tensor) -> Tensor:
    """A factor (B,) as (B, 1, 1, 1) of the dtype of the images."""
    return factor.to(images.dtype).view(-1, 1, 1, 1)


def _has_colour(images: Tensor) -> bool:
    """Whether the images are RGB; one channel is grey, and any other number an error."""
    channels = images.shape[1]
    if channels not in (1, 3):
        raise InputError(
            f"the images have {channels} channels",
            "saturation and hue are defined for red, green and blue",
            'give images of 3 channels (or 1, where they do nothing), or use augment="affine"',
        )
    return channels == 3
