"""The kernels of ``conv3x3``: which there are, how they are launched, and their gradient.

Their source is in ``cuda/``. Products are of bfloat16, summed in float32. The gradient of weights
is not rounded, and its parts are added in a fixed order; where cuDNN is faster, that computes it.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from autodo.cuda import Kernel, TensorMap, multiprocessors

SIDES = (8, 16, 32)
TILES = (160, 128, 64)
"""Outputs of a tile, the first that divides a layer's."""
GRADIENT_TILES = (80, 64)
"""The same when the gradient of weights is computed."""
INPUTS = 32
"""A layer's inputs come in groups of so many."""
SHARED_MEMORY = 232_448
"""Bytes that a program can have."""
REGISTERS = {
    ("convolve", 160): (168, 88, 208),
    ("convolve", 128): (136, 88, 160),
    ("convolve", 64): (104, 88, 112),
    ("weight_gradient", 80): (128, 32, 160),
    ("weight_gradient", 64): (104, 32, 128),
}
"""Of a thread when its program starts, of one that fetches and of one that multiplies. What small
tiles do not need is left to other kernels, such as those of a run beside this one."""
HALO = {8: 401, 16: 324, 32: 340}
"""Pixels of a plane in ``convolve``, by the side of an image."""
MOST_STAGES = 12
"""Of weights, or of pixels, on their way to be multiplied."""
BEGIN_AND_END = 4
"""Of a program, in tiles."""
MOST_SPLITS = 132


def fits(x: Tensor, weight: Tensor) -> bool:
    """Whether there is a kernel for images x (B, C, H, W) and these weights."""
    outputs, inputs = weight.shape[:2]
    count, side = x.shape[0], x.shape[-1]
    return (
        x.dtype == torch.bfloat16
        and side in SIDES
        and x.shape[-2] == side
        and count > 0
        and (side != 8 or count % 4 == 0)
        and weight.dtype == torch.float32
        and _tile(inputs, TILES) > 0
        and _tile(outputs, TILES) > 0
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def convolution(x: Tensor, weight: Tensor) -> Tensor:
    """(B, K, H, W) in bfloat16 of x (B, C, H, W) in bfloat16 and weight (K, C, 3, 3) in float32."""
    result: Tensor = _Convolution.apply(x, weight)
    return result


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        to_inputs, to_weight = ctx.needs_input_grad
        packed, turned, counters = pack(weight, both=to_inputs)
        ctx.save_for_backward(
            x if to_weight else None, turned, counters, weight if to_weight else None
        )
        return convolve(x, packed, counters[:2], weight.shape[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, turned, counters, weight = ctx.saved_tensors
        dy = dy.contiguous(memory_format=torch.channels_last)
        dx = None
        if turned is not None:
            dx = convolve(dy, turned, counters[2:], turned.shape[0] * turned.shape[4])
        return dx, None if x is None else weight_gradient(x, dy, weight)


def pack(weight: Tensor, *, both: bool) -> tuple[Tensor, Tensor | None, Tensor]:
    """Weights (K, C, 3, 3) as ``convolve`` reads them, and turned, for the gradient to the inputs.

    (K / tile, C / 32, 9, 4, tile, 8), and the same with K and C in each other's place; and the two
    counters of ``convolve`` for either.
    """
    outputs, inputs = weight.shape[:2]
    tiles = _tile(outputs, TILES), _tile(inputs, TILES)
    packed = _empty(weight, outputs // tiles[0], inputs // INPUTS, 9, 4, tiles[0], 8)
    turned = (
        _empty(weight, inputs // tiles[1], outputs // INPUTS, 9, 4, tiles[1], 8) if both else None
    )
    counters = weight.new_empty(4, dtype=torch.int32)
    _kernel("pack_weights")(
        (inputs // 32, outputs // 32, 9), 256,
        weight, packed, turned, counters, outputs, inputs, *tiles, *_strides(weight),
    )  # fmt: skip
    return packed, turned, counters


def convolve(x: Tensor, packed: Tensor, counter: Tensor, outputs: int) -> Tensor:
    """The convolution of x with packed weights; programs count the tiles that they have taken."""
    count, inputs, side = x.shape[:3]
    y = torch.empty(
        (count, outputs, side, side),
        dtype=x.dtype, device=x.device, memory_format=torch.channels_last,
    )  # fmt: skip
    tiles, tile = count * side * side // 256, packed.shape[4]
    grid = min(multiprocessors(x.device), tiles * outputs // tile)
    _kernel("convolve", side, tile)(
        (grid, 1, 1), 384, x, packed, y, counter, tiles, inputs, outputs
    )
    return y


def weight_gradient(x: Tensor, dy: Tensor, weight: Tensor) -> Tensor:
    """(K, C, 3, 3) in float32, of inputs x (B, C, H, W) and the gradient dy (B, K, H, W)."""
    ours = _cudnn_is_slow(x.shape[1], dy.shape[1])
    return (own_weight_gradient if ours else cudnn_weight_gradient)(x, dy, weight)


def _cudnn_is_slow(inputs: int, outputs: int) -> bool:
    """On an H200 it was for up to 320 inputs, and was not for 640 by 640.

    >>> _cudnn_is_slow(64, 64), _cudnn_is_slow(320, 640), _cudnn_is_slow(640, 640)
    (True, True, False)
    """
    return min(inputs, outputs) < 512


def own_weight_gradient(x: Tensor, dy: Tensor, weight: Tensor) -> Tensor:
    """The same by our kernels, not rounded."""
    inputs, outputs, side = x.shape[1], dy.shape[1], x.shape[-1]
    tile = _tile(outputs, GRADIENT_TILES)
    tiles, programs = len(x) * side * side // 128, multiprocessors(x.device)
    blocks = outputs // tile * -(-inputs // 64)
    splits = _splits(blocks, tiles, programs)
    parts = x.new_empty(splits, 9, inputs, outputs, dtype=torch.float32)
    _kernel("weight_gradient", side, tile)(
        (min(blocks * splits, programs), 1, 1), 512,
        *_boxes(x, dy), parts, tiles, inputs, outputs, splits,
    )  # fmt: skip
    gradient = torch.empty_like(weight)
    _kernel("sum_parts")(
        (inputs // 8, outputs // 32, 9), 256,
        parts, gradient, outputs, inputs, splits, *_strides(gradient),
    )  # fmt: skip
    return gradient


def _boxes(x: Tensor, dy: Tensor) -> tuple[TensorMap, TensorMap]:
    """Both, by tiles of ``weight_gradient``; of x with a pixel around."""
    if x.shape[-1] == 8:
        return TensorMap(x, (64, 10, 10, 2)), TensorMap(dy, (64, 8, 8, 2))
    return TensorMap(x, (64, 18, 10, 1)), TensorMap(dy, (64, 16, 8, 1))


def cudnn_weight_gradient(x: Tensor, dy: Tensor, weight: Tensor) -> Tensor:
    """The same, rounded to bfloat16 on its way."""
    # Of the weights it asks for the shape alone.
    shape = torch.empty(
        weight.shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last
    )
    one, asked = [1, 1], [False, True, False]
    found = torch.ops.aten.convolution_backward(
        dy, x, shape, None, one, one, one, False, [0, 0], 1, asked
    )[1]
    return torch.empty_like(weight).copy_(found)


def _splits(blocks: int, tiles: int, programs: int) -> int:
    """Into how many parts the pixels are cut, for each of the blocks of a gradient.

    Such that programs are busy to the end: the time of so many rounds, in tiles, is least.

    >>> _splits(6, 2048, 132)
    22
    """

    def time(splits: int) -> float:
        return -(-blocks * splits // programs) * (tiles / splits + BEGIN_AND_END)

    return min(range(1, min(tiles, MOST_SPLITS) + 1), key=time)


def _tile(channels: int, tiles: tuple[int, ...]) -> int:
    """The first of the tiles that divides so many channels, or 0."""
    return next((tile for tile in tiles if channels % tile == 0), 0)


def _empty(like: Tensor, *shape: int) -> Tensor:
    return like.new_empty(shape, dtype=torch.bfloat16)


def _strides(weight: Tensor) -> tuple[int, int, int]:
    """From an output, an input and a tap to the next."""
    return weight.stride(0), weight.stride(1), weight.stride(3)


@cache
def _kernel(name: str, side: int = 0, tile: int = 0) -> Kernel:
    source, shared = program(name, side, tile)
    return Kernel(source, name, shared=shared)


def program(name: str, side: int, tile: int) -> tuple[str, int]:
    """The source of a kernel and the bytes of shared memory that it asks for."""
    source = _read(name)
    if name == "convolve":
        fixed, stage = 3 * (HALO[side] * 64 + 16) + 4 * 20, tile * 64
    elif name == "weight_gradient":
        halo, boxes = (25 if side == 8 else 23), -(-tile // 64)
        fixed, stage = 1024, (halo + 16 * boxes) * 1024
    else:
        return source, 0
    stages = min(MOST_STAGES, (SHARED_MEMORY - fixed) // (stage + 16))
    shared = fixed + stages * (stage + 16)
    defined = {"SIDE": side, "NT": tile, "STAGES": stages, "SHARED": shared}
    defined |= zip(("AT_START", "TO_FETCH", "TO_MULTIPLY"), REGISTERS[name, tile], strict=True)
    lines = [f"#define {key} {value}" for key, value in defined.items()]
    product = _product(tile, transposed=name == "weight_gradient")
    source = "\n".join([*lines, product, _read("tensor_cores"), source])
    return source, shared


def _read(name: str) -> str:
    return files("autodo.models").joinpath("cuda", f"{name}.cu").read_text(encoding="utf-8")


def _product(columns: int, *, transposed: bool) -> str:
    """mma(): adds the product of 64 x 16 and 16 x ``columns`` numbers to the sums of a warpgroup.

    ``transposed``: both lie in memory with the reduced dimension last to change.
    """
    count = columns // 2
    sums = ", ".join(f"%{k}" for k in range(count))
    held = ", ".join(f'"+f"(sum[{k}])' for k in range(count))
    return f"""
__device__ __forceinline__ void mma(
    float (&sum)[{count}], unsigned long long a, unsigned long long b) {{
  asm volatile(
      "{{\\n.reg .pred add;\\nsetp.ne.b32 add, 1, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 {{{sums}}}, "
      "%{count}, %{count + 1}, add, 1, 1, {int(transposed)}, {int(transposed)};\\n}}\\n"
      : {held} : "l"(a), "l"(b));
}}"""
