"""The 3x3 convolutions of wide residual networks: our kernels against cuDNN's, layer by layer.

    python benchmarks/convolutions.py                     # on a Hopper GPU, about half a minute

Random numbers in bfloat16, channels last. cuDNN may choose its algorithm by time, as it does in
training. For each layer: TFLOP/s forward, to the inputs and to the weights, ours and cuDNN's
(in brackets), and how long our packing of the weights takes. Gradients of weights are made in
float32, as training asks for them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from autodo.cuda import is_hopper
from autodo.experiment.bench.timing import milliseconds
from autodo.models import conv3x3_cuda as ours
from autodo.train.devices import fast_convolutions
from autodo.train.recorded import Recorded

LAYERS = {
    "wrn-28-10": [(160, 160, 32), (160, 320, 32), (320, 320, 16), (320, 640, 16), (640, 640, 8)],
    "wrn-16-4": [(64, 64, 32), (64, 128, 32), (128, 128, 16), (128, 256, 16), (256, 256, 8)],
}
PASSES = ("forward", "to the inputs", "to the weights")


def duration(work: Callable[[], Tensor], device: torch.device, repeats: int) -> float:
    """Milliseconds of a call, recorded, so that the host is not what is timed."""

    def several() -> tuple[Tensor, ...]:
        for _ in range(repeats - 1):
            work()
        return (work(),)

    return milliseconds(Recorded(several, device), device, 1) / repeats


def layer(inputs: int, outputs: int, side: int, count: int, repeats: int) -> dict[str, float]:
    """TFLOP/s by pass and by whose kernel; milliseconds of packing."""
    device = torch.device("cuda", 0)
    torch.manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, device=device).to(memory_format=torch.channels_last)

    x, dy = (
        drawn(count, inputs, side, side).bfloat16(),
        drawn(count, outputs, side, side).bfloat16(),
    )
    weight = drawn(outputs, inputs, 3, 3) / (3 * inputs**0.5)
    packed, turned, counters = ours.pack(weight, both=True)
    assert turned is not None
    rounded = weight.bfloat16()

    def to_inputs() -> Tensor:
        one, asked = [1, 1], [True, False, False]
        return torch.ops.aten.convolution_backward(
            dy, x, rounded, None, one, one, one, False, [0, 0], 1, asked
        )[0]

    work = {
        ("ours", PASSES[0]): lambda: ours.convolve(x, packed, counters[:2], outputs),
        ("cuDNN", PASSES[0]): lambda: F.conv2d(x, rounded, padding=1),
        ("ours", PASSES[1]): lambda: ours.convolve(dy, turned, counters[2:], inputs),
        ("cuDNN", PASSES[1]): to_inputs,
        ("ours", PASSES[2]): lambda: ours.own_weight_gradient(x, dy, weight),
        ("cuDNN", PASSES[2]): lambda: ours.cudnn_weight_gradient(x, dy, weight),
    }
    operations = 2 * 9 * count * side * side * inputs * outputs
    speeds = {}
    for (whose, name), call in work.items():
        time = duration(call, device, repeats)
        speeds[f"{name}, {whose}"] = operations / time / 1e9
    speeds["packing, ms"] = duration(lambda: ours.pack(weight, both=True)[0], device, repeats)
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not torch.cuda.is_available() or not is_hopper(torch.device("cuda", 0)):
        raise SystemExit("the kernels need a GPU of compute capability 9.0 (Hopper)")
    table = Table("inputs, outputs, image", *PASSES, "packing, us")
    found = {}
    with fast_convolutions("auto"):
        for network, layers in LAYERS.items():
            for shape in layers:
                speeds = layer(*shape, args.batch, args.repeats)
                found[f"{network} {shape}"] = speeds
                cells = [
                    f"{speeds[f'{name}, ours']:.0f} ({speeds[f'{name}, cuDNN']:.0f})"
                    for name in PASSES
                ]
                table.add_row(str(shape), *cells, f"{1000 * speeds['packing, ms']:.1f}")
    Console().print(table)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
