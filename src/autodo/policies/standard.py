"""The standard augmentation of each benchmark, and ImageNet's transform for testing.

SVHN: a random crop after padding by 4 black pixels, then random erasing (p = 0.5). CIFAR: the same
with a horizontal flip. ImageNet: a random part of the image resized to 224 x 224, and a flip; for
testing, the short side resized to 256 and the centre 224 x 224.

Areas, aspect ratios and the ten attempts are torchvision's defaults. The published protocol erases
normalised images with 0; before normalisation that is the mean colour of the dataset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from autodo.errors import InputError
from autodo.policies import fused
from autodo.policies.geometry import crop_and_flip, warp_nearest
from autodo.policies.names import nearest
from autodo.policies.operations import check_images, send
from autodo.policies.policy import choose, uniform
from autodo.policies.rectangle import colour_of, fill
from autodo.policies.resample import resize

ATTEMPTS = 10
"""How often a box that does not fit is drawn again."""

PADDING = 4
ERASED_AREA, ERASED_RATIO = (0.02, 0.33), (0.3, 3.3)
CROPPED_AREA, CROPPED_RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
TRAIN_SIZE, TEST_SHORT_SIDE = 224, 256


@dataclass(frozen=True)
class Recipe:
    """What the standard augmentation of one dataset does."""

    flip: bool
    erased_colour: tuple[float, float, float] | None = None
    """With which colour random erasing fills its box; None: no erasing."""
    resized: bool = False
    """Whether a random part is resized; otherwise the padded image is cropped."""


RECIPES = {
    "svhn": Recipe(flip=False, erased_colour=(0.4377, 0.4438, 0.4728)),
    "cifar": Recipe(flip=True, erased_colour=(0.4914, 0.4822, 0.4465)),
    "imagenet": Recipe(flip=True, resized=True),
}


@dataclass(frozen=True, repr=False)
class Standard:
    """The standard augmentation of ``dataset``: "svhn", "cifar" or "imagenet".

    >>> Standard("cifar")(torch.rand(4, 3, 32, 32), torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 32, 32])
    >>> Standard("imagenet")(torch.rand(2, 3, 40, 60), torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 224, 224])
    """

    dataset: str

    def __post_init__(self) -> None:
        if self.dataset not in RECIPES:
            raise InputError(
                f"there is no standard augmentation for {self.dataset!r}",
                "it is known for the datasets of the paper",
                nearest(self.dataset, RECIPES),
            )

    @property
    def recipe(self) -> Recipe:
        """What is done."""
        return RECIPES[self.dataset]

    def draw(self, count: int, generator: Generator) -> Tensor:
        """Uniform numbers (count, K): all that chance decides about each image."""
        return uniform(generator, count, 3 + (3 + 2 * ATTEMPTS))

    @property
    def width(self) -> int:
        """Columns of a plan: 6 of a map, 4 of a box."""
        return 6 if self.recipe.erased_colour is None and not self.recipe.resized else 10

    def plan(self, count: int, size: tuple[int, int], generator: Generator) -> Tensor:
        """What becomes of ``count`` images of ``size`` (H, W): (count, K) int64 on the host."""
        return self._decide(self.draw(count, generator), size)

    def carry_out(self, images: Tensor, plan: Tensor) -> Tensor:
        """``images`` (B, C, H, W) augmented by their ``plan`` (B, K) on the same device."""
        check_images(images)
        recipe = self.recipe
        if recipe.erased_colour is not None and (kernels := fused.kernels(images)):
            return kernels.crop(images, plan, colour_of(recipe.erased_colour, images.shape[1]))
        maps, boxes = plan.tensor_split((6,), dim=1)
        if recipe.resized:
            images = resize(images, boxes, (TRAIN_SIZE, TRAIN_SIZE))
        if max(images.shape[-2:]) + PADDING < 2**15:
            maps = maps.int()  # no coordinate leaves 32 bits, which take half the time
        images = warp_nearest(images, maps)
        if recipe.erased_colour is None:
            return images
        return fill(images, boxes, colour_of(recipe.erased_colour, images.shape[1]))

    def size_after(self, size: tuple[int, int]) -> tuple[int, int]:
        """(H, W) of augmented images of ``size``."""
        return (TRAIN_SIZE, TRAIN_SIZE) if self.recipe.resized else size

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """``images`` (B, C, H, W) augmented by their ``draws`` (B, K) alone."""
        check_images(images)
        height, width = images.shape[-2:]
        return self.carry_out(images, send(self._decide(draws, (height, width)), images))

    def _decide(self, draws: Tensor, size: tuple[int, int]) -> Tensor:
        """Maps (B, 6) and, where there are any, boxes (B, 4) that follow from ``draws``."""
        recipe = self.recipe
        moved, boxed = draws[:, :3], draws[:, 3:]
        flip = (moved[:, 2] < 0.5) & recipe.flip
        if recipe.resized:
            still = torch.zeros_like(flip, dtype=torch.long)
            maps = crop_and_flip(still, still, flip, (TRAIN_SIZE, TRAIN_SIZE))
            return torch.cat((maps, resized_boxes(boxed[:, 1:], size)), dim=1)
        shift_x, shift_y = (choose(moved[:, :2], 2 * PADDING + 1) - PADDING).unbind(1)
        maps = crop_and_flip(shift_x, shift_y, flip, size)
        if recipe.erased_colour is None:
            return maps
        return torch.cat((maps, erased_boxes(boxed, size)), dim=1)

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """``images`` (B, C, H, W) in [0, 1], augmented."""
        return self.apply(images, self.draw(len(images), generator))

    def __repr__(self) -> str:
        return f"standard:{self.dataset}"


def for_testing(images: Tensor) -> Tensor:
    """ImageNet's test transform: short side to 256, centre 224 x 224, without chance.

    >>> for_testing(torch.rand(2, 3, 40, 60)).shape
    torch.Size([2, 3, 224, 224])
    """
    check_images(images)
    height, width = images.shape[-2:]
    short = min(height, width)
    size = (TEST_SHORT_SIDE * height // short, TEST_SHORT_SIDE * width // short)
    whole = torch.tensor([[0, 0, width, height]]).expand(len(images), -1)
    images = resize(images, send(whole, images), size)
    top, left = (round((side - TRAIN_SIZE) / 2) for side in size)
    return images[..., top : top + TRAIN_SIZE, left : left + TRAIN_SIZE]


def erased_boxes(draws: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes (B, 4) of random erasing from uniform numbers (B, 3 + 2 ATTEMPTS); empty for half.

    A box is smaller than the image in both directions; where no attempt gave one, it is empty.
    """
    height, width = size
    box_height, box_width = _attempts(draws[:, 3:], height * width, ERASED_AREA, ERASED_RATIO)
    fits = (box_height < height) & (box_width < width)
    box_height, box_width, found = _first(fits, box_height, box_width)
    erased = (found & (draws[:, 0] < 0.5)).long()
    return _placed(draws[:, 1], draws[:, 2], box_height * erased, box_width * erased, size)


def resized_boxes(draws: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes (B, 4) of the random resized crop from uniform numbers (B, 2 + 2 ATTEMPTS).

    Where no attempt fits, the largest part at the centre whose aspect ratio is allowed.
    """
    height, width = size
    # The ratio is width over height here, and height over width in random erasing.
    box_width, box_height = _attempts(draws[:, 2:], height * width, CROPPED_AREA, CROPPED_RATIO)
    fits = (box_width > 0) & (box_width <= width) & (box_height > 0) & (box_height <= height)
    box_height, box_width, found = _first(fits, box_height, box_width)
    boxes = _placed(draws[:, 0], draws[:, 1], box_height, box_width, size)
    return torch.where(found[:, None], boxes, torch.tensor(_central(size)))


def _central(size: tuple[int, int]) -> tuple[int, int, int, int]:
    height, width = size
    low, high = CROPPED_RATIO
    box_height = min(height, round(width / low))
    box_width = min(width, round(height * high))
    left, top = (width - box_width) // 2, (height - box_height) // 2
    return left, top, left + box_width, top + box_height


def _attempts(
    draws: Tensor, area: int, shares: tuple[float, float], ratios: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Two sides (B, ATTEMPTS) whose product is a random share of the area, their ratio random.

    The share is uniform, the ratio of the first side to the second uniform in its logarithm.
    """
    share, log_ratio = draws.unflatten(1, (ATTEMPTS, 2)).unbind(-1)
    box_area = area * (shares[0] + (shares[1] - shares[0]) * share)
    low, high = map(math.log, ratios)
    ratio = torch.exp(low + (high - low) * log_ratio)
    return (box_area * ratio).sqrt().round().long(), (box_area / ratio).sqrt().round().long()


def _first(fits: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Both sides (B,) of the first attempt that fits, and whether there is one."""
    found, attempt = fits.max(1, keepdim=True)
    return first.gather(1, attempt)[:, 0], second.gather(1, attempt)[:, 0], found[:, 0]


def _placed(x: Tensor, y: Tensor, height: Tensor, width: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes (B, 4) of ``height`` and ``width`` (B,), anywhere inside the image, by ``x``, ``y``."""
    left = (x * (size[1] - width + 1)).long()
    top = (y * (size[0] - height + 1)).long()
    return torch.stack((left, top, left + width, top + height), dim=1)
