"""A training step of WRN-28-10 alone, in the ways that were tried: which pays, and where time goes.

    python benchmarks/network_step.py                     # on a GPU, about two minutes
    python benchmarks/network_step.py --network wrn-10-1 --batch 64 --device cpu

bfloat16 and channels-last on CUDA, random images, cross-entropy, SGD with Nesterov momentum; no
data loading, no augmentation, no lambda (``autodo bench`` times the whole).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from autodo.experiment.bench.measure import floors, milliseconds
from autodo.models import build
from autodo.models.conv3x3 import Conv3x3
from autodo.models.norm_celu import NormCELU
from autodo.train.devices import autocast, fast_convolutions
from autodo.train.recorded import Recorded


class Case:
    """A network with its batch, and the three passes that are timed."""

    def __init__(
        self, network: str, batch: int, device: torch.device, *, fused: bool, own: bool
    ) -> None:
        torch.manual_seed(0)
        self.device = device
        layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
        self.model: nn.Module = build(network, channels=3, num_classes=10, image_size=32)
        self.model = self.model.to(device).to(memory_format=layout)  # type: ignore[call-overload]
        for module in self.model.modules():
            if isinstance(module, NormCELU):
                module.fused = fused
            if isinstance(module, Conv3x3):
                module.fast = own
        self.call: Callable[[Tensor], Tensor] = self.model
        self.images = torch.rand(batch, 3, 32, 32, device=device).to(memory_format=layout)
        self.labels = torch.arange(batch, device=device) % 10
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=torch.tensor(1e-3, device=device) if device.type == "cuda" else 1e-3,
            momentum=0.9,
            nesterov=True,
            weight_decay=1e-4,
            fused=device.type == "cuda",
        )

    def train(self) -> tuple[Tensor]:
        with fast_convolutions("auto"):
            with autocast(self.device, "auto"):
                logits = self.call(self.images)
            loss = F.cross_entropy(logits.float(), self.labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return (loss.detach(),)

    def forward(self) -> tuple[Tensor]:
        with fast_convolutions("auto"), torch.no_grad(), autocast(self.device, "auto"):
            return (self.call(self.images),)

    def to_pixels(self) -> tuple[Tensor]:
        images = self.images.clone().requires_grad_()
        with fast_convolutions("auto"), autocast(self.device, "auto"):
            logits = self.call(images)
        return torch.autograd.grad(logits.float().sum(), images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="wrn-28-10")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    device = torch.device(args.device)
    product, copy = floors(device)
    table = Table(title=f"{args.network}, batch {args.batch}: ms (product {product:.3g} TFLOP/s, "
                        f"copy {copy:.3g} GB/s)")  # fmt: skip
    names = ("way", "training step", "eval forward", "forward, backward to pixels", "first s")
    for k, name in enumerate(names):
        table.add_column(name, justify="left" if k == 0 else "right")
    ways = [("plain", False, False, False, False), ("fused norm + CELU", True, False, False, False)]
    if device.type == "cuda":
        ways += [
            ("torch.compile", False, False, True, False),
            ("fused norm + CELU, CUDA graph", True, False, False, True),
            ("the same, own convolutions", True, True, False, True),
        ]
    for name, fused, own, compiled, graph in ways:
        case = Case(args.network, args.batch, device, fused=fused, own=own)
        if compiled:
            case.call = torch.compile(case.model)
        cells = []
        start, first = time.perf_counter(), 0.0
        for method in (case.train, case.forward, case.to_pixels):
            case.model.train(method == case.train)
            case.model.requires_grad_(method == case.train)
            step = Recorded(method, device, enabled=graph)
            step()
            first = first or time.perf_counter() - start
            cells.append(f"{milliseconds(step, device, args.repeats):.2f}")
        table.add_row(name, *cells, f"{first:.1f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
