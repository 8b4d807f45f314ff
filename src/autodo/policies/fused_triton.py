"""The kernels of ``fused``: a program for each image, which does to it what it drew and no more.

Between loading and storing an image is a tile (channels, pixels) of whole levels, int32, padded to
powers of two. Padding is loaded as 0, stays between 0 and 255 and is kept out of all sums.

The pixels are those of ``operations.apply``, bit for bit. Integers are integers here too, and
floating-point arithmetic is that of torch, operation by operation: the kernels are compiled
without contracting products and sums (``enable_fp_fusion=False``), which would round once instead
of twice.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from autodo.policies import geometry, rectangle
from autodo.policies.operations import NUMBER
from autodo.policies.tables import SOLARIZE_ADD_THRESHOLD

FIRST_MOVE = tl.constexpr(NUMBER[geometry.OPERATIONS[0]])
LAST_MOVE = tl.constexpr(NUMBER[geometry.OPERATIONS[-1]])
INVERT = tl.constexpr(NUMBER["Invert"])
POSTERIZE = tl.constexpr(NUMBER["Posterize"])
SOLARIZE = tl.constexpr(NUMBER["Solarize"])
SOLARIZE_ADD = tl.constexpr(NUMBER["SolarizeAdd"])
BRIGHTNESS = tl.constexpr(NUMBER["Brightness"])
AUTO_CONTRAST = tl.constexpr(NUMBER["AutoContrast"])
EQUALIZE = tl.constexpr(NUMBER["Equalize"])
COLOR = tl.constexpr(NUMBER["Color"])
CONTRAST = tl.constexpr(NUMBER["Contrast"])
SHARPNESS = tl.constexpr(NUMBER["Sharpness"])
CUTOUT = tl.constexpr(NUMBER["Cutout"])
THRESHOLD = tl.constexpr(SOLARIZE_ADD_THRESHOLD)
NO_FRACTION = tl.constexpr(1.5 * 2**23)
"""A float32 plus this has no bits left for a fraction: the sum is rounded, halves to even."""

PIXELS_PER_WARP = 128

REGISTERS = 128
"""Of a thread: so few that two images of 32 x 32 share a multiprocessor, 256 run at once."""


@triton.jit
def _levels(values):  # type: ignore[no-untyped-def]
    """Numbers in [0, 1] as whole levels."""
    scaled = tl.minimum(tl.maximum(values * 255.0, 0.0), 255.0)
    return ((scaled + NO_FRACTION) - NO_FRACTION).to(tl.int32)


@triton.jit
def _cut(numbers):  # type: ignore[no-untyped-def]
    """Floating-point levels as whole ones, not rounded."""
    return tl.minimum(tl.maximum(numbers, 0.0), 255.0).to(tl.int32)


@triton.jit
def _source(map_ptr, x, y, height, width):  # type: ignore[no-untyped-def]
    """Which pixel is seen at (x, y) through a map in fixed point, and whether there is one."""
    column = (tl.load(map_ptr) * x + (tl.load(map_ptr + 1) * y + tl.load(map_ptr + 2))) >> 16
    row = (tl.load(map_ptr + 3) * x + (tl.load(map_ptr + 4) * y + tl.load(map_ptr + 5))) >> 16
    seen = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    return tl.where(seen, row * width + column, 0).to(tl.int32), seen


@triton.jit
def _take(  # type: ignore[no-untyped-def]
    rows, index, channel, BC: tl.constexpr, N: tl.constexpr, BP: tl.constexpr
):
    """(BC, BP) numbers below 2^15 of ``rows`` (BC, N), by their ``index`` in the row."""
    # As one row: in two dimensions the compiler wants every row of a gather in a single warp.
    index = tl.reshape(tl.broadcast_to(channel * N + index, (BC, BP)), (BC * BP,))
    taken = tl.gather(tl.reshape(rows.to(tl.int16), (BC * N,)), index, 0)
    return tl.reshape(taken, (BC, BP)).to(tl.int32)


@triton.jit
def _in_box(box_ptr, x, y):  # type: ignore[no-untyped-def]
    across = (x >= tl.load(box_ptr)) & (x < tl.load(box_ptr + 2))
    return across & (y >= tl.load(box_ptr + 1)) & (y < tl.load(box_ptr + 3))


@triton.jit
def _by_channel(channel, first, second, third):  # type: ignore[no-untyped-def]
    return tl.where(channel == 0, first, tl.where(channel == 1, second, third))


@triton.jit
def _stretched(pixels, inside):  # type: ignore[no-untyped-def]
    """AutoContrast."""
    low = tl.min(tl.where(inside, pixels, 255), axis=1, keep_dims=True)
    high = tl.max(tl.where(inside, pixels, 0), axis=1, keep_dims=True)
    scale = 255.0 / tl.maximum(high - low, 1).to(tl.float64)
    stretched = _cut(pixels.to(tl.float64) * scale - low.to(tl.float64) * scale)
    return tl.where(high > low, stretched, pixels)


@triton.jit
def _equalized(  # type: ignore[no-untyped-def]
    pixels, inside, channel, count, C: tl.constexpr, BC: tl.constexpr, BP: tl.constexpr
):
    """Equalize."""
    level = tl.arange(0, 256)[None, :]
    known = tl.where(inside, pixels, 0)
    counts = tl.zeros([BC, 256], tl.int32)
    for c in tl.static_range(C):
        own = tl.histogram(tl.sum(tl.where(channel == c, known, 0), axis=0), 256)[None, :]
        # Padding was counted as level 0.
        counts = tl.where(channel == c, tl.where(level == 0, own - (BP - count), own), counts)
    top = tl.max(known, axis=1, keep_dims=True)
    highest = tl.sum(tl.where(level == top, counts, 0), axis=1, keep_dims=True)
    step = (count - highest) // 255
    below = tl.cumsum(counts, axis=1) - counts
    table = tl.minimum((step // 2 + below) // tl.maximum(step, 1), 255)
    return _take(tl.where(step > 0, table, level), pixels, channel, BC, 256, BP)


@triton.jit
def _luma(pixels, channel, C: tl.constexpr):  # type: ignore[no-untyped-def]
    """(1, pixels)."""
    if C == 1:
        grey = pixels
    else:
        weight = tl.where(channel < C, _by_channel(channel, 19595, 38470, 7471), 0)
        grey = (tl.sum(pixels * weight, axis=0, keep_dims=True) + 0x8000) >> 16
    return grey


@triton.jit
def _neighbours(  # type: ignore[no-untyped-def]
    numbers, inner, distance, pixel, channel, BC: tl.constexpr, BP: tl.constexpr
):
    """The sum of each number and those ``distance`` before and after it, where it is ``inner``."""
    before = tl.where(inner, pixel - distance, pixel)
    after = tl.where(inner, pixel + distance, pixel)
    others = _take(numbers, before, channel, BC, BP, BP) + _take(
        numbers, after, channel, BC, BP, BP
    )
    return numbers + others


@triton.jit
def _smooth(  # type: ignore[no-untyped-def]
    pixels, x, y, height, width, pixel, channel, BC: tl.constexpr, BP: tl.constexpr
):
    """Each level the mean of its neighbourhood, weights 1 around 5; the outermost stay."""
    across, along = (x > 0) & (x < width - 1), (y > 0) & (y < height - 1)
    sums = _neighbours(pixels, along, width, pixel, channel, BC, BP)
    sums = _neighbours(sums, across & along, 1, pixel, channel, BC, BP)
    return tl.where(across & along, (sums + 4 * pixels + 6) // 13, pixels)


@triton.jit
def _blend(poor, pixels, factor):  # type: ignore[no-untyped-def]
    poor = poor.to(tl.float32)
    return _cut(poor + factor.to(tl.float32) * (pixels.to(tl.float32) - poor))


@triton.jit(
    do_not_specialize=["stride", "maps", "boxes", "height", "width"],
    do_not_specialize_on_alignment=["images_ptr", "out_ptr", "plan_ptr", "values_ptr"],
)
def _steps(  # type: ignore[no-untyped-def]
    images_ptr, out_ptr, plan_ptr, values_ptr, stride, maps, boxes, height, width,
    RED: tl.constexpr, GREEN: tl.constexpr, BLUE: tl.constexpr, DIVIDE: tl.constexpr,
    LENGTH: tl.constexpr, C: tl.constexpr, BC: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """All steps of one image; ``maps`` and ``boxes`` say where they start in a row of the plan."""
    image = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, BC)[:, None]
    pixel = tl.arange(0, BP)[None, :]
    count = height * width
    inside = (channel < C) & (pixel < count)
    y = pixel // width
    x = pixel - y * width
    at = image * C * count + channel * count + pixel
    plan_ptr += image * stride
    values_ptr += image * stride + LENGTH
    pixels = _levels(tl.load(images_ptr + at, mask=inside, other=0.0))
    for s in range(LENGTH):
        operation = tl.load(plan_ptr + s).to(tl.int32)
        value = tl.load(values_ptr + s)
        if (operation >= FIRST_MOVE) & (operation <= LAST_MOVE):
            source, seen = _source(plan_ptr + maps + 6 * s, x, y, height, width)
            pixels = tl.where(seen, _take(pixels, source, channel, BC, BP, BP), 0)
        elif operation == INVERT:
            pixels = 255 - pixels
        elif operation == POSTERIZE:
            dropped = (8 - tl.minimum(tl.maximum(value.to(tl.int64), 0), 8)).to(tl.int32)
            pixels = (pixels >> dropped) << dropped
        elif operation == SOLARIZE:
            pixels = tl.where(pixels.to(tl.float64) < value, pixels, 255 - pixels)
        elif operation == SOLARIZE_ADD:
            added = tl.minimum(tl.maximum(pixels + value.to(tl.int64), 0), 255).to(tl.int32)
            pixels = tl.where(pixels < THRESHOLD, added, pixels)
        elif operation == BRIGHTNESS:
            pixels = _cut(pixels.to(tl.float32) * value.to(tl.float32))
        elif operation == AUTO_CONTRAST:
            pixels = _stretched(pixels, inside)
        elif operation == EQUALIZE:
            pixels = _equalized(pixels, inside, channel, count, C, BC, BP)
        elif operation == COLOR:
            pixels = _blend(_luma(pixels, channel, C), pixels, value)
        elif operation == CONTRAST:
            total = tl.sum(tl.where(pixel < count, _luma(pixels, channel, C), 0))
            pixels = _blend((2 * total + count) // (2 * count), pixels, value)
        elif operation == SHARPNESS:
            smooth = _smooth(pixels, x, y, height, width, pixel, channel, BC, BP)
            pixels = _blend(smooth, pixels, value)
        elif operation == CUTOUT:
            painted = _by_channel(channel, RED, GREEN, BLUE)
            pixels = tl.where(_in_box(plan_ptr + boxes + 4 * s, x, y), painted, pixels)
    # torch multiplies by the reciprocal on CUDA, where it divides by a number.
    if DIVIDE:
        result = tl.div_rn(pixels.to(tl.float32), 255.0)
    else:
        result = pixels.to(tl.float32) * (1 / 255)
    tl.store(out_ptr + at, result, mask=inside)


@triton.jit(
    do_not_specialize=["stride", "height", "width"],
    do_not_specialize_on_alignment=["images_ptr", "out_ptr", "plan_ptr"],
)
def _crop(  # type: ignore[no-untyped-def]
    images_ptr, out_ptr, plan_ptr, stride, height, width,
    RED: tl.constexpr, GREEN: tl.constexpr, BLUE: tl.constexpr,
    C: tl.constexpr, BC: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """One image through its map, with its box painted."""
    image = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, BC)[:, None]
    pixel = tl.arange(0, BP)[None, :]
    count = height * width
    inside = (channel < C) & (pixel < count)
    y = pixel // width
    x = pixel - y * width
    start = image * C * count + channel * count
    plan_ptr += image * stride
    source, seen = _source(plan_ptr, x, y, height, width)
    values = tl.load(images_ptr + start + source, mask=inside & seen, other=0.0)
    painted = _by_channel(channel, RED, GREEN, BLUE).to(tl.float32)
    values = tl.where(_in_box(plan_ptr + 6, x, y), painted, values)
    tl.store(out_ptr + start + pixel, values, mask=inside)


def carry_out(images: Tensor, plan: Tensor, length: int, *, maps: int, boxes: int) -> Tensor:
    """``images`` (B, C, H, W) after the ``length`` steps of their ``plan`` (see ``whole``).

    ``maps`` and ``boxes`` are the columns of the plan in which these start, where there are any.
    """
    colour = rectangle.colour_of(rectangle.CUTOUT_COLOUR, images.shape[1])
    images, out, plan = images.contiguous(), _like(images), _rows(plan)
    with torch.cuda.device_of(images):
        _steps[(len(images),)](
            images, out, plan, plan.view(torch.float64), plan.stride(0), maps, boxes,
            *images.shape[-2:], **_colours(tuple(map(round, colour))),
            DIVIDE=not images.is_cuda, LENGTH=length, **_tile(images), maxnreg=REGISTERS,
        )  # fmt: skip
    return out


def crop(images: Tensor, plan: Tensor, colour: tuple[float, ...]) -> Tensor:
    """``images`` (B, C, H, W) seen through maps, with ``colour`` in boxes: the ``plan`` (B, 10)."""
    images, out, plan = images.contiguous(), _like(images), _rows(plan)
    with torch.cuda.device_of(images):
        _crop[(len(images),)](
            images, out, plan, plan.stride(0), *images.shape[-2:], **_colours(colour),
            **_tile(images),
        )  # fmt: skip
    return out


def _like(images: Tensor) -> Tensor:
    return torch.empty(images.shape, dtype=torch.float32, device=images.device)


def _rows(plan: Tensor) -> Tensor:
    """A part of a plan is read where it is: its rows are whole, if far apart."""
    return plan if plan.stride(1) == 1 else plan.contiguous()


def _colours(colour: tuple[float, ...]) -> dict[str, float]:
    return dict(zip(("RED", "GREEN", "BLUE"), (*colour, *colour, *colour), strict=False))


def _tile(images: Tensor) -> dict[str, int | bool]:
    """The padded image, the warps that share it, and how they are compiled."""
    channels, height, width = images.shape[1:]
    pixels = max(PIXELS_PER_WARP, triton.next_power_of_2(height * width))
    return {
        "C": channels,
        "BC": triton.next_power_of_2(channels),
        "BP": pixels,
        # Every thread has pixels of its own: none is held, and counted, twice.
        "num_warps": min(16, pixels // PIXELS_PER_WARP),
        "enable_fp_fusion": False,
    }
