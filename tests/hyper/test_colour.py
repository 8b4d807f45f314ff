"""The colour operations against kornia, at the identity, and where HSV is singular: grey pixels."""

from __future__ import annotations

from collections.abc import Callable

import kornia.enhance
import pytest
import torch
from torch import Tensor

from autodo.errors import InputError
from autodo.hyper.colour import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
)

BLENDS = [
    (adjust_brightness, kornia.enhance.adjust_brightness_accumulative),
    (adjust_contrast, kornia.enhance.adjust_contrast_with_mean_subtraction),
    (adjust_saturation, kornia.enhance.adjust_saturation_with_gray_subtraction),
]
IDENTITIES = [(adjust, 1.0) for adjust, _ in BLENDS] + [(adjust_hue, 0.0)]
FACTORS = torch.tensor([0.0, 0.3, 0.9, 1.0, 1.2, 2.5], dtype=torch.float64)
ANGLES = torch.tensor([-3.0, -1.1, -0.2, 0.0, 0.7, 3.1], dtype=torch.float64)


def random_images(batch: int = 6, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.rand(batch, channels, 5, 7, generator=generator, dtype=torch.float64)


def grey_images() -> Tensor:
    """Black, grey and white pixels, and pairs of equal channels."""
    pixels = [[0, 0, 0], [0.5, 0.5, 0.5], [1, 1, 1], [0.7, 0.7, 0.2], [0.1, 0.6, 0.6], [0, 1, 0]]
    return torch.tensor(pixels, dtype=torch.float64).view(6, 3, 1, 1)


@pytest.mark.parametrize(("ours", "theirs"), BLENDS)
@pytest.mark.parametrize("channels", [1, 3])
def test_values_agree_with_kornia(ours, theirs, channels):
    images = random_images(channels=channels)
    torch.testing.assert_close(ours(images, FACTORS), theirs(images, FACTORS), rtol=0, atol=1e-12)


@pytest.mark.parametrize("images", [random_images(), grey_images()], ids=["random", "ties"])
def test_hue_agrees_with_kornia(images):
    theirs = kornia.enhance.adjust_hue(images, ANGLES)  # adds 1e-8 to its own denominator
    torch.testing.assert_close(adjust_hue(images, ANGLES), theirs, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("adjust", "identity"), IDENTITIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [1, 3])
def test_identity_factor_gives_back_the_image_exactly(adjust, identity, dtype, channels):
    images = random_images(channels=channels).to(dtype)
    assert torch.equal(adjust(images, torch.full((6,), identity, dtype=dtype)), images)


def test_hue_turns_red_green_blue_in_this_order():
    red, green, blue = torch.eye(3, dtype=torch.float64).view(3, 1, 3, 1, 1)
    third = torch.tensor([2 * torch.pi / 3], dtype=torch.float64)
    torch.testing.assert_close(adjust_hue(red, third), green)
    torch.testing.assert_close(adjust_hue(green, third), blue)
    torch.testing.assert_close(adjust_hue(red, -third), blue)


def test_a_whole_turn_of_the_hue_is_the_identity():
    turn = torch.full((6,), 2 * torch.pi, dtype=torch.float64)
    torch.testing.assert_close(adjust_hue(random_images(), turn), random_images())


@pytest.mark.parametrize(("adjust", "identity"), IDENTITIES)
def test_gradients_agree_with_finite_differences(adjust: Callable, identity: float):
    # 0.2 to 0.8 and a small change of the factor: no pixel is near the clamp.
    images = (0.2 + 0.6 * random_images(2)).requires_grad_()
    factor = torch.tensor([identity - 0.11, identity + 0.13], dtype=torch.float64)
    assert torch.autograd.gradcheck(adjust, (images, factor.requires_grad_()), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("chroma", [0.0, 1e-38, 1e-30, 1e-7])
def test_hue_gradients_are_finite_for_grey_and_nearly_grey_pixels(dtype, chroma):
    images = grey_images().to(dtype)
    images[0, 0] += chroma
    images.requires_grad_()
    angle = ANGLES.to(dtype, copy=True).requires_grad_()
    adjust_hue(images, angle).square().sum().backward()
    assert images.grad.isfinite().all()
    assert angle.grad.isfinite().all()
    assert images.grad.abs().max() < 20


def test_a_grey_pixel_passes_its_gradient_as_the_identity():
    images = torch.full((1, 3, 1, 1), 0.5, dtype=torch.float64, requires_grad=True)
    upstream = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64).view(1, 3, 1, 1)
    adjust_hue(images, torch.ones(1, dtype=torch.float64)).backward(upstream)
    torch.testing.assert_close(images.grad, upstream)


def test_saturation_and_hue_leave_single_channel_images_alone():
    images = random_images(channels=1)
    assert torch.equal(adjust_saturation(images, FACTORS), images)
    assert torch.equal(adjust_hue(images, ANGLES), images)


@pytest.mark.parametrize("adjust", [adjust_saturation, adjust_hue])
def test_colour_of_four_channels_is_refused(adjust):
    with pytest.raises(InputError, match="4 channels"):
        adjust(random_images(channels=4), FACTORS)


def test_each_image_has_its_own_factor():
    images = random_images()
    for adjust, factors in ((adjust_contrast, FACTORS), (adjust_hue, ANGLES)):
        together = adjust(images, factors)
        for i in range(6):
            alone = adjust(images[i : i + 1], factors[i : i + 1])
            torch.testing.assert_close(alone, together[i : i + 1])
