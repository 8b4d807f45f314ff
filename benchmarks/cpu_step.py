"""A training step of a network on a CPU: by layout, by what happens to freed memory, by precision.

    OMP_NUM_THREADS=1 python benchmarks/cpu_step.py
    OMP_NUM_THREADS=2 python benchmarks/cpu_step.py

Each way is a process of its own, since glibc is told once for all what to do with memory, and the
ways take turns. Milliseconds of a forward and a backward pass of the network alone, median, in
training mode, and of a forward pass of 512 images in evaluation.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from autodo.models import SmallCNN, WideResNet
from autodo.train.devices import autocast
from autodo.train.memory import keep_freed_memory

WAYS = {
    "as it comes": "",
    "channels last": "last",
    "channels last, freed memory kept": "last kept",
    "the same in bfloat16": "last kept bfloat16",
}
NETWORKS: dict[str, tuple[Callable[[], nn.Module], int, int, int]] = {
    "small_cnn, 1 x 8 x 8": (lambda: SmallCNN(1, 10), 1, 8, 128),
    "small_cnn, 3 x 16 x 16": (lambda: SmallCNN(3, 10), 3, 16, 128),
    "small_cnn, 3 x 32 x 32": (lambda: SmallCNN(3, 10), 3, 32, 128),
    "WRN-16-2, 3 x 32 x 32": (lambda: WideResNet(16, 2, channels=3, num_classes=10), 3, 32, 128),
}
EVALUATED = 512


def times(words: str, steps: int) -> dict[str, tuple[float, float]]:
    """Of each network the milliseconds of a training step and of a pass in evaluation."""
    if "kept" in words and not keep_freed_memory():
        raise SystemExit("this malloc cannot be told to keep memory")
    layout = torch.channels_last if "last" in words else torch.contiguous_format
    precision = "bfloat16" if "bfloat16" in words else "float32"
    device = torch.device("cpu")
    found = {}
    for name, (make, channels, side, batch) in NETWORKS.items():
        torch.manual_seed(0)
        model = make().to(memory_format=layout)  # type: ignore[call-overload]
        labels = torch.randint(10, (batch,))
        some, many = (
            torch.rand(count, channels, side, side).contiguous(memory_format=layout)
            for count in (batch, EVALUATED)
        )

        def step(model: nn.Module = model, x: Tensor = some, y: Tensor = labels) -> None:
            with autocast(device, precision):
                logits = model(x)
            F.cross_entropy(logits.float(), y).backward()

        def look(model: nn.Module = model, x: Tensor = many) -> None:
            with autocast(device, precision), torch.no_grad():
                model(x)

        training = timed(step, steps)
        model.eval()
        found[name] = training, timed(look, max(3, steps // 3))
    return found


def timed(work: Callable[[], None], steps: int) -> float:
    work()
    took = []
    for _ in range(steps):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return 1000 * median(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--turns", type=int, default=3, help="the median of them counts")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way is not None:
        print(json.dumps(times(args.way, args.steps)))
        return
    runs: dict[str, list[dict[str, list[float]]]] = {name: [] for name in WAYS}
    for _ in range(args.turns):
        for name, words in WAYS.items():
            command = [sys.executable, __file__, "--way", words, "--steps", str(args.steps)]
            runs[name].append(json.loads(subprocess.check_output(command)))
    table = Table(title=f"ms of a training step (of {EVALUATED} images in evaluation), CPU")
    table.add_column("network")
    for name in WAYS:
        table.add_column(name, justify="right")
    for network in NETWORKS:
        entries = [
            "{:.1f} ({:.1f})".format(*(median(run[network][k] for run in found) for k in (0, 1)))
            for found in runs.values()
        ]
        table.add_row(network, *entries)
    Console(width=150).print(table)
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}")


if __name__ == "__main__":
    main()
