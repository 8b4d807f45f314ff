"""The standard augmentation: boxes as torchvision draws them, resizing as Pillow does it."""

from __future__ import annotations

import math

import pytest
import torch
from PIL import Image
from pillow import from_pil, to_pil
from torch import Generator, Tensor

from autodo import policies
from autodo.errors import InputError
from autodo.policies.operations import to_levels
from autodo.policies.resample import resize
from autodo.policies.standard import RECIPES, Standard, erased_boxes, for_testing, resized_boxes


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def some_images(count: int, size: tuple[int, int], channels: int = 3) -> Tensor:
    """Levels k/255 without black or the colours of erasing."""
    return torch.randint(1, 256, (count, channels, *size), generator=seeded(99)).float() / 255


def x_then_y(image: Image.Image, box: tuple[int, ...], size: tuple[int, int]) -> Image.Image:
    """A crop resized by Pillow to ``size`` (height, width), one side after the other."""
    crop = image.crop(box)
    crop = crop.resize((size[1], crop.height), Image.Resampling.BILINEAR)
    return crop.resize(size[::-1], Image.Resampling.BILINEAR)


def without_erasing(dataset: str, count: int, seed: int) -> Tensor:
    draws = Standard(dataset).draw(count, seeded(seed))
    draws[:, 3] = 0.9  # the gate of random erasing
    return draws


@pytest.mark.parametrize(("dataset", "flips"), [("svhn", False), ("cifar", True)])
def test_every_crop_of_the_padded_image_occurs(dataset, flips):
    image = some_images(1, (6, 5))
    count = 4000
    results = Standard(dataset).apply(
        image.expand(count, -1, -1, -1), without_erasing(dataset, count, 1)
    )
    padded = torch.nn.functional.pad(image, (4, 4, 4, 4))
    crops = {}
    for top in range(9):
        for left in range(9):
            crop = padded[0, :, top : top + 6, left : left + 5]
            crops[crop.numpy().tobytes()] = (top, left, False)
            if flips:
                crops[crop.flip(-1).contiguous().numpy().tobytes()] = (top, left, True)
    drawn = [crops[result.contiguous().numpy().tobytes()] for result in results]  # or a KeyError
    assert set(drawn) == set(crops.values())
    share = sum(flip for _, _, flip in drawn) / count
    assert share == 0 if not flips else abs(share - 0.5) < 0.03


@pytest.mark.parametrize("dataset", ["svhn", "cifar"])
def test_half_of_the_images_are_erased_with_the_mean_colour(dataset):
    images = some_images(2000, (32, 32))
    draws = Standard(dataset).draw(2000, seeded(2))
    results = Standard(dataset).apply(images, draws)
    colour = torch.tensor(RECIPES[dataset].erased_colour).view(3, 1, 1)
    erased = (results == colour).all(1)
    touched = erased.flatten(1).any(1)
    assert abs(touched.double().mean() - 0.5) < 0.04
    untouched = draws.clone()
    untouched[:, 3] = 0.9
    same = (results == Standard(dataset).apply(images, untouched)).all(1)
    assert torch.equal(same, ~erased)  # outside the boxes nothing changed
    assert torch.equal(torch.nonzero(touched)[:, 0], torch.nonzero(draws[:, 3] < 0.5)[:, 0])


def erased_box(draws: list[float], height: int, width: int) -> tuple[int, int, int, int] | None:
    """Random erasing by the book, for one image: attempts until a box fits."""
    gate, x, y, *pairs = draws
    for share, log_ratio in zip(pairs[::2], pairs[1::2], strict=True):
        area = height * width * (0.02 + (0.33 - 0.02) * share)
        ratio = math.exp(math.log(0.3) + (math.log(3.3) - math.log(0.3)) * log_ratio)
        box_height, box_width = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if box_height < height and box_width < width:
            top = int(y * (height - box_height + 1))
            left = int(x * (width - box_width + 1))
            return (left, top, left + box_width, top + box_height) if gate < 0.5 else None
    return None


def resized_box(draws: list[float], height: int, width: int) -> tuple[int, int, int, int] | None:
    """The random resized crop by the book, for one image; None where no attempt fits."""
    x, y, *pairs = draws
    for share, log_ratio in zip(pairs[::2], pairs[1::2], strict=True):
        area = height * width * (0.08 + (1.0 - 0.08) * share)
        ratio = math.exp(math.log(3 / 4) + (math.log(4 / 3) - math.log(3 / 4)) * log_ratio)
        box_width, box_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < box_width <= width and 0 < box_height <= height:
            top = int(y * (height - box_height + 1))
            left = int(x * (width - box_width + 1))
            return left, top, left + box_width, top + box_height
    return None


@pytest.mark.parametrize("size", [(32, 32), (200, 300), (5, 3), (2, 40)])
def test_erased_boxes_are_those_of_the_rule_image_by_image(size):
    draws = torch.rand(2000, 23, generator=seeded(3), dtype=torch.float64)
    boxes = erased_boxes(draws, size).tolist()
    for row, (left, top, right, bottom) in zip(draws.tolist(), boxes, strict=True):
        box = erased_box(row, *size)
        assert (left, top, right, bottom) == box if box else right == left and bottom == top


@pytest.mark.parametrize("size", [(224, 224), (200, 300), (5, 3), (300, 160)])
def test_resized_boxes_are_those_of_the_rule_image_by_image(size):
    draws = torch.rand(2000, 22, generator=seeded(3), dtype=torch.float64)
    boxes = resized_boxes(draws, size).tolist()
    found = [resized_box(row, *size) for row in draws.tolist()]
    assert all(box is None or tuple(ours) == box for ours, box in zip(boxes, found, strict=True))
    assert sum(box is not None for box in found) > 1900


def test_small_erased_boxes_have_uniform_areas_and_log_uniform_ratios():
    draws = torch.rand(40_000, 23, generator=seeded(3), dtype=torch.float64)
    left, top, right, bottom = erased_boxes(draws, (300, 300)).double().unbind(1)
    share = (bottom - top) * (right - left) / 90_000
    small = (share > 0.025) & (share < 0.2)  # below, every ratio fits
    assert abs(share[small].mean() - (0.025 + 0.2) / 2) < 0.002
    ratio = ((bottom - top) / (right - left))[small]
    assert abs(ratio.log().mean() - (math.log(0.3) + math.log(3.3)) / 2) < 0.02
    assert ratio.min() > 0.29
    assert ratio.max() < 3.4


def test_an_image_too_small_for_a_box_is_left_alone():
    draws = torch.rand(50, 23, generator=seeded(4), dtype=torch.float64)
    boxes = erased_boxes(draws, (1, 1))
    assert torch.equal(boxes[:, :2], boxes[:, 2:])


@pytest.mark.parametrize(
    ("size", "box"),
    [((10, 400), (193, 0, 206, 10)), ((400, 9), (0, 194, 9, 206)), ((1, 1), (0, 0, 1, 1))],
)
def test_a_long_image_falls_back_to_its_centre(size, box):
    """At most 13 of 400 pixels have an allowed ratio: less than 8% of the area."""
    draws = torch.rand(30, 22, generator=seeded(6), dtype=torch.float64)
    assert resized_boxes(draws, size).unique(dim=0).tolist() == [list(box)]


@pytest.mark.parametrize(
    ("box", "size"),
    [
        ((0, 0, 61, 47), (224, 224)),
        ((5, 3, 44, 40), (32, 32)),
        ((7, 9, 8, 10), (5, 5)),
        ((2, 1, 60, 46), (9, 13)),
        ((10, 0, 42, 32), (32, 32)),
        ((0, 0, 61, 47), (1, 1)),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_resized_boxes_are_the_ones_of_pillow(box, size, channels):
    images = some_images(4, (47, 61), channels)
    ours = resize(images, torch.tensor([box] * 4), size)
    for image, result in zip(images, ours, strict=True):
        assert torch.equal(
            to_levels(result), from_pil(x_then_y(to_pil(to_levels(image)), box, size))
        )


def test_random_boxes_are_the_ones_of_pillow():
    images, size = some_images(150, (80, 97)), (36, 40)
    draws = torch.rand(150, 22, generator=seeded(10), dtype=torch.float64)
    boxes = resized_boxes(draws, (80, 97))
    ours = to_levels(resize(images, boxes, size))
    for image, box, result in zip(images, boxes.tolist(), ours, strict=True):
        source = to_pil(to_levels(image))
        assert torch.equal(result, from_pil(x_then_y(source, box, size)))
        # From Pillow 13 on some boxes are resized along y first.
        direct = from_pil(source.crop(box).resize(size[::-1], Image.Resampling.BILINEAR))
        assert (result.int() - direct.int()).abs().max() <= 1


def test_a_box_of_the_right_size_is_cut_out_unchanged():
    images = some_images(3, (20, 30))
    boxes = torch.tensor([[0, 0, 16, 12], [14, 8, 30, 20], [5, 4, 21, 16]])
    result = resize(images, boxes, (12, 16))
    for image, (left, top, right, bottom), part in zip(images, boxes.tolist(), result, strict=True):
        torch.testing.assert_close(part, image[:, top:bottom, left:right], rtol=0, atol=1e-6)


def test_the_test_transform_is_resize_256_and_centre_crop_224():
    images = some_images(2, (300, 401))
    ours = to_levels(for_testing(images))
    assert ours.shape == (2, 3, 224, 224)
    width = int(256 * 401 / 300)
    left, top = round((width - 224) / 2), round((256 - 224) / 2)
    for image, result in zip(images, ours, strict=True):
        resized = x_then_y(to_pil(to_levels(image)), (0, 0, 401, 300), (256, width))
        assert torch.equal(result, from_pil(resized.crop((left, top, left + 224, top + 224))))


def test_half_of_imagenets_crops_are_mirrored():
    # Brighter to the right; whatever part is shown, the direction tells.
    images = torch.linspace(0, 1, 64).expand(200, 1, 48, 64)
    results = Standard("imagenet")(images, seeded(7))
    mirrored = results[..., 0].mean((1, 2)) > results[..., -1].mean((1, 2))
    assert abs(mirrored.double().mean() - 0.5) < 0.1


@pytest.mark.parametrize("dataset", RECIPES)
def test_an_image_does_not_depend_on_the_others_of_its_batch(dataset):
    images, policy = some_images(10, (24, 20)), Standard(dataset)
    draws = policy.draw(10, seeded(8))
    together = policy.apply(images, draws)
    for i in range(10):
        alone = policy.apply(images[i : i + 1], draws[i : i + 1])
        torch.testing.assert_close(alone, together[i : i + 1], rtol=0, atol=0)


def test_autocast_does_not_coarsen_the_resized_image():
    images = some_images(2, (40, 40))
    plain = Standard("imagenet")(images, seeded(9))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(Standard("imagenet")(images, seeded(9)), plain)


def test_an_unknown_dataset_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'cifar'"):
        policies.Standard("ciphar")
