"""Every operation against Pillow, level by level, on grey and RGB images of odd and even sizes."""

from __future__ import annotations

import pillow
import pytest
import torch
from torch import Tensor

from autodo.errors import InputError
from autodo.policies.operations import KINDS, NAMES, NEUTRAL, NUMBER, Steps, apply

SIZES = [(32, 32), (28, 28), (17, 23), (1, 1), (2, 5), (3, 3), (64, 48)]
RANGES = {
    "Rotate": (-180.0, 180.0),
    "ShearX": (-1.0, 1.0),
    "ShearY": (-1.0, 1.0),
    "TranslateX": (-1.1, 1.1),
    "TranslateY": (-1.1, 1.1),
    "Posterize": (1.0, 8.9),
    "Solarize": (0.0, 256.0),
    "SolarizeAdd": (0.0, 110.0),
    "Brightness": (0.0, 2.0),
    "Color": (0.0, 2.0),
    "Contrast": (0.0, 2.0),
    "Sharpness": (0.0, 2.0),
    "Cutout": (0.0, 0.6),
}
"""Wider than any published policy draws."""


def images_of_all_kinds(count: int, channels: int, size: tuple[int, int], seed: int) -> Tensor:
    """uint8 images: noise, few levels, a narrow band, flat, smooth ramps, mostly one level."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(256, (count, channels, *size), generator=generator)
    centre = torch.randint(256, (count, channels, 1, 1), generator=generator)
    ramp = torch.linspace(0, 255, size[0] * size[1]).view(1, 1, *size) * (centre / 255)
    kinds = (
        noise,
        noise // 64 * 64,
        (centre + noise // 16).clamp(0, 255),
        centre.expand_as(noise),
        ramp.long().expand_as(noise),
        torch.where(noise < 240, centre, noise),
    )
    kind = torch.arange(count) % len(kinds)
    return torch.stack([kinds[k][i] for i, k in enumerate(kind)]).to(torch.uint8)


def random_steps(name: str, count: int, seed: int) -> Steps:
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(count, 1, generator=generator, dtype=torch.float64)
    low, high = RANGES.get(name, (0.0, 0.0))
    return Steps(
        torch.full((count, 1), NUMBER[name]),
        low + uniform * (high - low),
        torch.rand(count, 1, 2, generator=generator, dtype=torch.float64),
    )


def constant_steps(name: str, value: float, count: int) -> Steps:
    return Steps(
        torch.full((count, 1), NUMBER[name]),
        torch.full((count, 1), value, dtype=torch.float64),
        torch.full((count, 1, 2), 0.4, dtype=torch.float64),
    )


def mixed_steps(count: int, length: int, seed: int) -> Steps:
    """All operations in random order, every value within its range."""
    generator = torch.Generator().manual_seed(seed)
    operation = torch.randint(len(NAMES), (count, length), generator=generator)
    low, high = torch.tensor([RANGES.get(name, (0.0, 0.0)) for name in NAMES]).double().T
    uniform = torch.rand(count, length, generator=generator, dtype=torch.float64)
    value = low[operation] + uniform * (high - low)[operation]
    place = torch.rand(count, length, 2, generator=generator, dtype=torch.float64)
    return Steps(operation, value, place)


def levels(images: Tensor) -> Tensor:
    return (images * 255).round().int()


def largest_difference(name: str, channels: int, size: tuple[int, int], count: int) -> int:
    images = images_of_all_kinds(count, channels, size, seed=1)
    steps = random_steps(name, count, seed=2)
    ours = levels(apply(images.float() / 255, steps))
    return (ours - pillow.operate_all(images, steps).int()).abs().max().item()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_every_level_is_the_one_of_pillow(name, channels, size):
    assert largest_difference(name, channels, size, count=120) == 0


def test_sorting_by_operation_sorts_by_kind():
    assert [name for kind in KINDS for name in kind.names] == list(NAMES)


def test_a_photograph_sized_image_is_the_one_of_pillow():
    for name in NAMES:
        assert largest_difference(name, 3, (224, 301), count=6) == 0, name


@pytest.mark.parametrize("angle", [0, 45, 90, 180, 270, 360, -90, 450])
@pytest.mark.parametrize("size", [(6, 6), (5, 5), (4, 7)])
def test_rotation_by_round_angles_is_the_one_of_pillow(angle, size):
    images = images_of_all_kinds(2, 3, size, seed=3)
    steps = constant_steps("Rotate", float(angle), 2)
    ours = levels(apply(images.float() / 255, steps))
    assert torch.equal(ours, pillow.operate_all(images, steps).int())


@pytest.mark.parametrize("whole", range(-9, 10))
def test_translation_by_half_pixels_is_the_one_of_pillow(whole):
    images = images_of_all_kinds(4, 1, (8, 8), seed=4)
    for name in ("TranslateX", "TranslateY"):
        steps = constant_steps(name, (whole + 0.5) / 8, 4)
        ours = levels(apply(images.float() / 255, steps))
        assert torch.equal(ours, pillow.operate_all(images, steps).int())


@pytest.mark.parametrize("name", ["ShearX", "ShearY", "TranslateX", "TranslateY"])
def test_values_beyond_any_image_leave_nothing_of_it(name):
    """Nothing. In 32 bits the coordinate 2^16 would be 0 again, which is inside."""
    images = images_of_all_kinds(4, 3, (8, 8), seed=13).float() / 255
    assert apply(images, constant_steps(name, 2.0**16 * 2, 4)).max() == 0


def test_steps_follow_each_other_as_in_pillow():
    images = images_of_all_kinds(300, 3, (19, 24), seed=5)
    steps = mixed_steps(300, length=4, seed=6)
    ours = levels(apply(images.float() / 255, steps))
    assert torch.equal(ours, pillow.operate_all(images, steps).int())


def test_an_image_does_not_depend_on_the_others_of_its_batch():
    images = images_of_all_kinds(64, 3, (9, 12), seed=7).float() / 255
    steps = mixed_steps(64, length=3, seed=8)
    together = apply(images, steps)
    for i in range(64):
        alone = slice(i, i + 1)
        assert torch.equal(apply(images[alone], steps[alone]), together[alone])
    shuffled = torch.randperm(64, generator=torch.Generator().manual_seed(9))
    assert torch.equal(apply(images[shuffled], steps[shuffled]), together[shuffled])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["Identity", *NEUTRAL])
def test_the_neutral_value_changes_nothing(name, channels):
    images = images_of_all_kinds(12, channels, (7, 10), seed=10).float() / 255
    assert torch.equal(apply(images, constant_steps(name, NEUTRAL.get(name, 0.0), 12)), images)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "Identity"])
def test_every_other_operation_changes_something(name):
    images = images_of_all_kinds(12, 3, (32, 32), seed=11).float() / 255
    value = RANGES.get(name, (0.0, 0.0))[1] * 0.6
    assert not torch.equal(apply(images, constant_steps(name, value, 12)), images)


def test_posterize_to_no_bits_is_black():
    images = images_of_all_kinds(6, 3, (4, 4), seed=12).float() / 255
    assert apply(images, constant_steps("Posterize", 0.9, 6)).max() == 0


def test_images_between_two_levels_are_taken_to_the_nearest_and_stay_in_the_unit_interval():
    images = torch.tensor([[[[-0.3, 0.4999 / 255, 0.51 / 255, 1.7]]]])
    result = apply(images, constant_steps("Identity", 0.0, 1))
    assert (result * 255).round().flatten().tolist() == [0, 0, 1, 255]


def test_an_empty_batch_stays_empty():
    assert apply(torch.zeros(0, 3, 4, 4), constant_steps("Invert", 0.0, 0)).shape == (0, 3, 4, 4)


@pytest.mark.parametrize(
    "images",
    [torch.zeros(2, 4, 5, 5), torch.zeros(2, 3, 5, 5, dtype=torch.uint8), torch.zeros(3, 5, 5)],
    ids=["4 channels", "bytes", "no batch"],
)
def test_what_is_no_batch_of_images_is_refused(images):
    with pytest.raises(InputError, match="1 or 3 channels"):
        apply(images, constant_steps("Invert", 0.0, 2))
