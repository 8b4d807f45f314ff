"""Steps on the whole batch: the same calls with the same shapes, whatever was drawn.

``operations.apply`` gives each kind the images that drew it, which is the least work. Here every
operation that a policy can draw is done to all images, and each image keeps the result of the one
it drew: more arithmetic, but nothing depends on what was drawn except numbers, so that a GPU
records the calls once and replays them. The pixels are the same, bit for bit. Small images on CUDA
are the work of one kernel, see ``fused``, which again does to each only what it drew.

What varies comes as one table of the host, ``plan``, with a row of 64-bit numbers per image.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from autodo.policies import enhance, fused, geometry, rectangle, tables
from autodo.policies.operations import NUMBER, Steps, check_images, cutout, to_levels

MOVES, LOOKS, BLENDS, CUTS = (
    geometry.OPERATIONS,
    (*tables.FIXED, *tables.OF_IMAGE),
    tuple(enhance.POOR),
    ("Cutout",),
)
"""Operations that share their last calls: one warp, one table, one blend, one box per image."""


def plan(steps: Steps, operations: Collection[str], size: tuple[int, int]) -> Tensor:
    """``steps`` of B images of ``size`` (H, W) as (B, K) int64, K = ``width(operations, S)``.

    Columns for S steps: S operations, the bits of S values, then, where they are among the
    ``operations`` that can be drawn, 6 S of the geometric maps and 4 S of Cutout's boxes.
    """
    columns = [steps.operation, steps.value.double().view(torch.int64)]
    if _among(operations, MOVES):
        number = steps.operation - NUMBER[MOVES[0]]
        columns.append(geometry.fixed_point(number, steps.value, size).flatten(1))
    if "Cutout" in operations:
        boxes = rectangle.cutout_boxes(steps.value.flatten(), steps.place.flatten(0, 1), size)
        columns.append(boxes.view(len(steps), -1))
    return torch.cat(columns, dim=1)


def width(operations: Collection[str], length: int) -> int:
    """Columns of the plan of ``length`` steps.

    >>> width(("Invert",), 3), width(("Invert", "Rotate", "Flip"), 3)
    (6, 24)
    """
    return length * (2 + 6 * bool(_among(operations, MOVES)) + 4 * ("Cutout" in operations))


def carry_out(images: Tensor, plan: Tensor, operations: Collection[str], length: int) -> Tensor:
    """``images`` (B, C, H, W) in [0, 1] after the ``length`` steps of their ``plan``.

    Both are on one device. The result is that of ``operations.apply``.

    >>> steps = Steps(torch.tensor([[NUMBER["Invert"]]]), torch.zeros(1, 1), torch.zeros(1, 1, 2))
    >>> planned = plan(steps, ("Invert",), (1, 3))
    >>> carry_out(torch.tensor([[[[0.0, 0.2, 1.0]]]]), planned, ("Invert",), 1)
    tensor([[[[1.0000, 0.8000, 0.0000]]]])
    """
    check_images(images)
    moves, looks, blends = (_among(operations, names) for names in (MOVES, LOOKS, BLENDS))
    if kernels := fused.kernels(images):
        boxes_at = width(operations, length) - 4 * length
        return kernels.carry_out(images, plan, length, maps=2 * length, boxes=boxes_at)
    operation, value, rest = plan.tensor_split((length, 2 * length), dim=1)
    value = value.view(torch.float64)
    maps, boxes = rest.tensor_split((6 * length if moves else 0,), dim=1)
    drew = {names: _drew(names, operation) for names in (MOVES, LOOKS, BLENDS, CUTS)}
    fixed = _fixed_tables(_among(operations, tables.FIXED), operation, value)
    pixels = to_levels(images)
    for s in range(length):
        results: list[tuple[tuple[str, ...], Tensor]] = []
        number, factors = operation[:, s], value[:, s]
        if moves:
            moved = geometry.warp_nearest(pixels, maps[:, 6 * s : 6 * s + 6])
            results.append((MOVES, moved))
        if looks:
            given = [] if fixed is None else [(tables.FIXED[0], fixed[:, s, None])]
            own = [(k, table(pixels)) for k, table in tables.OF_IMAGE.items() if k in looks]
            results.append((LOOKS, tables.look_up(pixels, _choose(number, given + own))))
        if blends:
            poor = _choose(number, [(name, enhance.POOR[name](pixels)) for name in blends])
            results.append((BLENDS, enhance.blend(poor, pixels, factors)))
        if "Cutout" in operations:
            results.append((CUTS, cutout(pixels, boxes[:, 4 * s : 4 * s + 4])))
        for names, result in results:
            pixels = torch.where(drew[names][:, s, None, None, None], result, pixels)
    return pixels.float().div_(255)


def _among(operations: Collection[str], names: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in operations)


def _drew(names: tuple[str, ...], operation: Tensor) -> Tensor:
    """Whether each of ``operation`` is one of ``names``, which are neighbours in NAMES."""
    return (operation >= NUMBER[names[0]]) & (operation <= NUMBER[names[-1]])


def _fixed_tables(names: tuple[str, ...], operation: Tensor, value: Tensor) -> Tensor | None:
    """Tables (B, S, 256) of the drawn ones of ``names``, which follow from the value."""
    if not names:
        return None
    made = [(name, tables.fixed_table(name, value.flatten())) for name in names]
    return _choose(operation.flatten(), made).unflatten(0, operation.shape)


def _choose(operation: Tensor, versions: list[tuple[str, Tensor]]) -> Tensor:
    """For each image the version (B, ...) of the operation (B,) it drew; or the first."""
    (_, chosen), *others = versions
    for name, version in others:
        drawn = (operation == NUMBER[name]).view(-1, *[1] * (version.dim() - 1))
        chosen = torch.where(drawn, version, chosen)
    return chosen
