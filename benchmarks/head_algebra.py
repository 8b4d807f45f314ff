"""The head's part of a hyper step of W and S: the fused kernels against plain torch operations.

    python benchmarks/head_algebra.py                     # on a GPU, about a minute
    python benchmarks/head_algebra.py --device cpu        # torch alone, calls counted

Features are random: everything of the step but the network. ``kernels`` counts what the device ran
(on a CPU: what torch was asked to do), ``error`` is the largest one of the gradient of the labels
against the same in float64, as a share of its largest entry. On CUDA each way is timed as a CUDA
graph, as a run replays it, and as it is called.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from rich.console import Console
from rich.table import Table as Printed
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from autodo.experiment.bench.timing import milliseconds
from autodo.hyper import DatasetModel
from autodo.hyper.table import Table
from autodo.implicit import Neumann, head, head_hypergradient
from autodo.train.hyper_optimizer import HyperOptimizer
from autodo.train.recorded import Recorded

VIEWS = {
    "alias", "as_strided", "detach", "empty", "empty_like", "expand", "new_empty", "select",
    "slice", "split", "t", "transpose", "unbind", "unsqueeze", "view",
}  # fmt: skip


class Calls(TorchDispatchMode):
    """Counts the operations that do something."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += func.overloadpacket.__name__ not in VIEWS
        return func(*args, **(kwargs or {}))


def kernels(step: Callable[[], object], device: torch.device) -> int:
    if device.type == "cpu":
        with Calls() as calls:
            step()
        return calls.count
    step()
    torch.cuda.synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        step()
        torch.cuda.synchronize(device)
    return sum(event.device_type != torch.autograd.DeviceType.CPU for event in profiled.events())


@contextmanager
def chosen(fused: bool) -> Iterator[None]:
    """The kernels inside, or nowhere."""
    can_fuse, Table.fused = head._can_fuse, fused
    if not fused:
        head._can_fuse = lambda *_: False
    try:
        yield
    finally:
        head._can_fuse, Table.fused = can_fuse, True


class Case:
    """One batch in front of a head; the parts of its hyper step."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        torch.manual_seed(0)
        self.device, classes = device, args.classes
        data = DatasetModel(torch.arange(args.points) % classes, num_classes=classes,
                            loss=args.loss)  # fmt: skip
        self.data = data.to(device)
        linear = nn.Linear(args.width, classes).to(device)
        alpha = args.alpha if args.alpha == "auto" else float(args.alpha)
        self.hyper = HyperOptimizer(self.data, head=linear, solver=Neumann(args.steps, alpha))
        self.features = torch.randn(args.batch, args.width).relu().to(device)
        self.trusted = torch.randn(args.batch, args.width).relu().to(device)
        self.labels = torch.arange(args.batch, device=device) % classes
        self.index = torch.randperm(args.points)[: args.batch].to(device)
        self.scale = torch.ones((), device=device)
        found = self.gradient()
        self.gradients = found[0][:, None].clone(), found[1].clone()

    def gradient(self) -> tuple[Tensor, ...]:
        found = self.hyper.gradient(self.features, self.index, self.trusted, self.labels)
        return found.weight_logits, found.label_logits, found.solution.residual, found.finite

    def tables(self) -> tuple[Tensor, ...]:
        for name, gradient in zip(("weight", "label"), self.gradients, strict=True):
            self.data.table(name).step(self.index, gradient, 0.05 * self.scale)
        return (self.scale,)

    def step(self) -> tuple[Tensor, ...]:
        result = self.hyper.step(
            lambda images: images, (self.features, self.index), (self.trusted, self.labels),
            scale=self.scale, encoded=True, check=False,
        )  # fmt: skip
        return result.trusted_loss, result.residual, result.diverged, result.finite

    def error(self) -> float:
        """Of the gradient of the labels, against float64."""
        linear, index = self.hyper.head, self.index
        exact = head_hypergradient(
            self.features.double(), linear.weight.detach().double(), linear.bias.detach().double(),
            self.data.weight_logits(index).double(), self.data.label_logits(index).double(),
            self.trusted.double(), self.labels, solver=self.hyper.solver,
            loss=self.data.training_loss.name,
        ).label_logits  # fmt: skip
        return float((self.gradient()[1] - exact).abs().max() / exact.abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--points", type=int, default=50_000)
    parser.add_argument("--loss", default="symmetric_kl")
    parser.add_argument("--alpha", default="auto")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=200)
    args = parser.parse_args()
    device = torch.device(args.device)
    cuda = device.type == "cuda"
    size = f"batch {args.batch}, {args.width} features, {args.classes} classes"
    solver = f"Neumann({args.steps}, {args.alpha})"
    table = Printed(title=f"{size}, {args.loss}, {solver}, {device}")
    for name in ("part", "way", "kernels", "ms recorded", "ms called", "error"):
        table.add_column(name, justify="left" if name in ("part", "way") else "right")
    for part in ("gradient", "tables", "step"):
        for fused in (False, True) if cuda else (False,):
            with chosen(fused):
                case = Case(args, device)
                error = f"{case.error():.1e}" if part == "gradient" else ""
                call = getattr(case, part)
                count = kernels(call, device)
                called = milliseconds(call, device, args.repeats)
                recorded = "-"
                if cuda:
                    replay = Recorded(call, device)
                    replay()  # ``milliseconds`` calls it often enough before it looks at the clock
                    recorded = f"{milliseconds(replay, device, args.repeats):.3f}"
                    assert replay._graph is not None
            way = "fused" if fused else "torch"
            table.add_row(part, way, str(count), recorded, f"{called:.3f}", error)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
