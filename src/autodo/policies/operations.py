"""Operations of the policies, each on the images of a batch that drew it.

A policy draws :class:`Steps` on the host: for every image and every step an operation, its value
and a place. :func:`apply` sorts the images of a step by operation, so that those of one kind are a
slice of the batch, lets every kind run once on its slice, and restores the order at the end. The
orders are known on the host: the device is never asked how many images drew what.

Images are taken to 256 grey levels first. Every operation equals Pillow's on those levels; see
the modules of the kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from autodo.errors import InputError
from autodo.policies import enhance, geometry, rectangle, tables

IDENTITY = "Identity"

NAMES = (
    IDENTITY,
    *geometry.OPERATIONS,
    *tables.FIXED,
    "AutoContrast",
    "Equalize",
    *enhance.OPERATIONS,
    "Cutout",
)
"""All operations. Those of one kind are neighbours: they run together."""

NUMBER = {name: k for k, name in enumerate(NAMES)}

GEOMETRIC = geometry.OPERATIONS
"""The operations that move pixels."""

SIGNED = ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY")
"""Operations whose value has two directions; policies draw the sign."""

NEUTRAL = {"Brightness": 1.0, "Color": 1.0, "Contrast": 1.0, "Sharpness": 1.0, "Posterize": 8.0}
NEUTRAL |= {"Solarize": 256.0} | dict.fromkeys((*SIGNED, "SolarizeAdd", "Cutout"), 0.0)
"""The value with which an operation changes nothing, where it has one."""

_KINDS: tuple[tuple[str, ...], ...] = (
    (IDENTITY,),
    geometry.OPERATIONS,
    tables.FIXED,
    *((name,) for name in NAMES[NUMBER["AutoContrast"] :]),
)
_KIND_OF = torch.tensor([k for k, names in enumerate(_KINDS) for _ in names])


@dataclass(frozen=True)
class Steps:
    """What a batch of B images goes through in S steps, on the host."""

    operation: Tensor
    """(B, S) int64: numbers of NAMES."""
    value: Tensor
    """(B, S) float64: in the units of the operation."""
    place: Tensor
    """(B, S, 2) float64 in [0, 1): where Cutout cuts, as fractions of width and height."""

    def __len__(self) -> int:
        return len(self.operation)

    def __getitem__(self, images: slice | Tensor) -> Steps:
        """The steps of some of the images."""
        return Steps(self.operation[images], self.value[images], self.place[images])


def apply(images: Tensor, steps: Steps) -> Tensor:
    """``images`` (B, C, H, W) in [0, 1] after their ``steps``, as float32 levels k/255.

    An image's result depends on its own pixels and steps alone.

    >>> steps = Steps(torch.tensor([[NUMBER["Invert"]]]), torch.zeros(1, 1), torch.zeros(1, 1, 2))
    >>> apply(torch.tensor([[[[0.0, 0.2, 1.0]]]]), steps)
    tensor([[[[1.0000, 0.8000, 0.0000]]]])
    """
    check_images(images)
    pixels = to_levels(images)
    order = torch.arange(len(images))  # row k of pixels is image order[k]
    for s in range(steps.operation.shape[1]):
        operation = steps.operation[order, s]
        permutation = torch.argsort(operation, stable=True)
        order = order[permutation]
        pixels = pixels.index_select(0, send(permutation, pixels))
        pixels = _step(pixels, operation[permutation], steps.value[order, s], steps.place[order, s])
    return pixels.index_select(0, send(torch.argsort(order), pixels)).float().div_(255)


def _step(pixels: Tensor, operation: Tensor, value: Tensor, place: Tensor) -> Tensor:
    """One operation for each image; ``operation`` (B,) is sorted."""
    counts = torch.bincount(_KIND_OF[operation], minlength=len(_KINDS)).tolist()
    start, parts = 0, []
    for kind, count in zip(_KINDS, counts, strict=True):
        if count:
            part = slice(start, start + count)
            run = _RUN.get(kind[0], _leave)
            parts.append(run(pixels[part], operation[part], value[part], place[part]))
            start += count
    return torch.cat(parts) if parts else pixels


def _leave(pixels: Tensor, *_: Tensor) -> Tensor:
    return pixels


def _geometric(pixels: Tensor, operation: Tensor, value: Tensor, place: Tensor) -> Tensor:
    height, width = pixels.shape[-2:]
    maps = _by_name(
        operation, value, lambda name, values: geometry.fixed_point(name, values, (height, width))
    )
    return geometry.warp_nearest(pixels, send(maps, pixels))


def _fixed_table(pixels: Tensor, operation: Tensor, value: Tensor, place: Tensor) -> Tensor:
    return tables.look_up(pixels, send(_by_name(operation, value, tables.fixed_table), pixels))


def _auto_contrast(pixels: Tensor, *_: Tensor) -> Tensor:
    return tables.look_up(pixels, tables.auto_contrast_table(pixels))


def _equalize(pixels: Tensor, *_: Tensor) -> Tensor:
    return tables.look_up(pixels, tables.equalize_table(pixels))


def _enhance(blend: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def run(pixels: Tensor, operation: Tensor, value: Tensor, place: Tensor) -> Tensor:
        return blend(pixels, send(value.float(), pixels))

    return run


def _cutout(pixels: Tensor, operation: Tensor, value: Tensor, place: Tensor) -> Tensor:
    height, width = pixels.shape[-2:]
    boxes = rectangle.cutout_boxes(value, place, (height, width))
    colour = rectangle.colour_of(rectangle.CUTOUT_COLOUR, pixels.shape[1])
    levels = torch.tensor(colour).round().to(torch.uint8)
    return rectangle.fill(pixels, send(boxes, pixels), send(levels, pixels))


_RUN: dict[str, Callable[..., Tensor]] = {
    geometry.OPERATIONS[0]: _geometric,
    tables.FIXED[0]: _fixed_table,
    "AutoContrast": _auto_contrast,
    "Equalize": _equalize,
    "Color": _enhance(enhance.color),
    "Contrast": _enhance(enhance.contrast),
    "Sharpness": _enhance(enhance.sharpness),
    "Cutout": _cutout,
}
"""How a kind runs, by its first operation; Identity has no entry."""


def _by_name(operation: Tensor, value: Tensor, make: Callable[[str, Tensor], Tensor]) -> Tensor:
    """Parameters of images sorted by operation: ``make`` once for each name that occurs."""
    numbers, counts = torch.unique_consecutive(operation, return_counts=True)
    parts = value.split(counts.tolist())
    return torch.cat(
        [make(NAMES[k], part) for k, part in zip(numbers.tolist(), parts, strict=True)]
    )


def send(tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor of the host on the device of ``like``, without waiting for that device."""
    return tensor.to(like.device, non_blocking=True)


def to_levels(images: Tensor) -> Tensor:
    """Images in [0, 1] as uint8, to the nearest level."""
    return (images.float() * 255).round_().clamp_(0, 255).to(torch.uint8)


def check_images(images: Tensor) -> None:
    """Refuse what is not a batch of grey or RGB floating-point images."""
    if images.dim() != 4 or not images.is_floating_point() or images.shape[1] not in (1, 3):
        raise InputError(
            f"images are {images.dtype} of shape {tuple(images.shape)}",
            "a policy needs floating-point images (B, C, H, W) in [0, 1] with 1 or 3 channels",
            'convert bytes with images.float() / 255; for other channels use policy "none"',
        )
