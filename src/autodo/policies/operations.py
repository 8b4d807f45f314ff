"""Operations of the policies, each on the images of a batch that drew it.

A policy draws :class:`Steps` on the host: for every image and every step an operation, its value
and a place. :func:`apply` sorts the images of a step by operation, so that those of one kind are a
slice of the batch, lets every kind run once on its slice, and restores the order at the end. The
orders are known on the host: the device is never asked how many images drew what. This does the
least work; ``whole`` does the same with the fewest calls.

Images are taken to 256 grey levels first. Every operation equals Pillow's on those levels; see
the modules of the kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from autodo.errors import InputError
from autodo.policies import enhance, geometry, rectangle, tables

IDENTITY = "Identity"

NAMES = (
    IDENTITY,
    *geometry.OPERATIONS,
    *tables.FIXED,
    *tables.OF_IMAGE,
    *enhance.POOR,
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
    count, length = steps.operation.shape
    operation, order = steps.operation.sort(dim=0, stable=True)
    place = steps.place.gather(0, order[..., None].expand(-1, -1, 2))
    sorted_steps = Steps(operation, steps.value.gather(0, order), place)
    # Step s reads the rows that step s - 1 left in its own order; the last rows are read by image.
    before = torch.cat((torch.arange(count)[:, None], order.argsort(dim=0)), dim=1)
    rows = torch.cat((before[:, :-1].gather(0, order), before[:, -1:]), dim=1)
    rows = send(rows.T.contiguous(), images)
    pixels = to_levels(images)
    for s, runs in enumerate(_plan(sorted_steps, pixels)):
        parts = pixels.index_select(0, rows[s]).split([size for size, _, _ in runs])
        results = [run(part, given) for part, (_, run, given) in zip(parts, runs, strict=True)]
        pixels = torch.cat(results) if results else pixels
    return pixels.index_select(0, rows[length]).float().div_(255)


_Run = tuple[int, Callable[[Tensor, Tensor], Tensor], Tensor]
"""How many of the sorted images, what is done to them, with which parameters."""


def _plan(steps: Steps, pixels: Tensor) -> list[list[_Run]]:
    """What runs in each step, for ``steps`` that are sorted by operation within each step.

    The parameters of a kind are made and sent for all steps at once: on a GPU it is the number of
    calls, not their size, that takes the time.
    """
    length = steps.operation.shape[1]
    operation, value = steps.operation.T.flatten(), steps.value.T.flatten()
    place = steps.place.transpose(0, 1).flatten(0, 1)
    kind_of = _KIND_OF[operation]
    cell = torch.arange(length).repeat_interleave(len(steps)) * len(KINDS) + kind_of
    counts = torch.bincount(cell, minlength=length * len(KINDS)).view(length, len(KINDS))
    plan: list[list[_Run]] = [[] for _ in range(length)]
    for k, (kind, sizes) in enumerate(zip(KINDS, counts.T.tolist(), strict=True)):
        if any(sizes):
            chosen = (kind_of == k).nonzero()[:, 0]
            made = kind.prepare(operation[chosen], value[chosen], place[chosen], pixels.shape)
            parts = send(made, pixels).split(sizes)
            for runs, size, part in zip(plan, sizes, parts, strict=True):
                runs += [(size, kind.run, part)] if size else []
    return plan


def _values(operation: Tensor, value: Tensor, place: Tensor, shape: torch.Size) -> Tensor:
    return value.float()


def _maps(operation: Tensor, value: Tensor, place: Tensor, shape: torch.Size) -> Tensor:
    size = (shape[-2], shape[-1])
    maps = geometry.fixed_point(operation - NUMBER[GEOMETRIC[0]], value, size)
    return geometry.smallest_type(maps, size)


def _tables(operation: Tensor, value: Tensor, place: Tensor, shape: torch.Size) -> Tensor:
    return _by_name(operation, value, tables.fixed_table)


def _boxes(operation: Tensor, value: Tensor, place: Tensor, shape: torch.Size) -> Tensor:
    return rectangle.cutout_boxes(value, place, (shape[-2], shape[-1]))


def _by_name(operation: Tensor, value: Tensor, make: Callable[[str, Tensor], Tensor]) -> Tensor:
    """Parameters from ``value`` (N,): ``make`` is called once for each name that occurs."""
    operation, order = operation.sort(stable=True)
    numbers, counts = torch.unique_consecutive(operation, return_counts=True)
    parts = value[order].split(counts.tolist())
    made = [make(NAMES[k], part) for k, part in zip(numbers.tolist(), parts, strict=True)]
    return torch.cat(made)[order.argsort()]


def _identity(pixels: Tensor, _: Tensor) -> Tensor:
    return pixels


def _by_own_table(name: str, pixels: Tensor, _: Tensor) -> Tensor:
    return tables.look_up(pixels, tables.OF_IMAGE[name](pixels))


def _enhance(name: str, pixels: Tensor, factors: Tensor) -> Tensor:
    return enhance.blend(enhance.POOR[name](pixels), pixels, factors)


def cutout(pixels: Tensor, boxes: Tensor) -> Tensor:
    """``pixels`` (B, C, H, W) uint8 with Cutout's colour in ``boxes`` (B, 4)."""
    colour = rectangle.colour_of(rectangle.CUTOUT_COLOUR, pixels.shape[1])
    return rectangle.fill(pixels, boxes, tuple(map(round, colour)))


@dataclass(frozen=True)
class Kind:
    """Operations that run together."""

    names: tuple[str, ...]
    prepare: Callable[[Tensor, Tensor, Tensor, torch.Size], Tensor]
    """Parameters (N, ...) on the host, from operation, value, place and the shape of the batch."""
    run: Callable[[Tensor, Tensor], Tensor]
    """New pixels from pixels (N, C, H, W) uint8 and the parameters, on the device."""


KINDS = (
    Kind((IDENTITY,), _values, _identity),
    Kind(geometry.OPERATIONS, _maps, geometry.warp_nearest),
    Kind(tables.FIXED, _tables, tables.look_up),
    *(Kind((name,), _values, partial(_by_own_table, name)) for name in tables.OF_IMAGE),
    *(Kind((name,), _values, partial(_enhance, name)) for name in enhance.POOR),
    Kind(("Cutout",), _boxes, cutout),
)
"""In the order of NAMES, so that images sorted by operation are sorted by kind."""

_KIND_OF = torch.tensor([k for k, kind in enumerate(KINDS) for _ in kind.names])


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
