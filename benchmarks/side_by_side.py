"""Training steps of several processes on one device: what a step costs it, by their number.

    python benchmarks/side_by_side.py                     # on a GPU, about half a minute
    nvidia-cuda-mps-control -d && python benchmarks/side_by_side.py      # by NVIDIA's MPS
    python benchmarks/side_by_side.py --network wrn-10-1 --batch 16 --device cpu

Each process takes recorded steps of the network alone, as in ``network_step.py``. Without NVIDIA's
multi-process service they have the GPU in turns, with it their kernels run beside each other.
Milliseconds of the device for a step are the seconds that went by over the steps of all.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from multiprocessing.connection import Connection

import torch
from network_step import Case
from rich.console import Console
from rich.table import Table

from autodo.train.recorded import Recorded

WARM_UP, AT_A_TIME = 10, 10


def take_steps(pipe: Connection, network: str, batch: int, device: torch.device) -> None:
    """For every number of seconds that comes: take steps for so long, give steps and seconds."""
    case = Case(network, batch, device, fused=True, own=True)
    step = Recorded(case.train, device)
    for _ in range(WARM_UP if device.type == "cuda" else 1):
        step()
    pipe.send(0)
    while (seconds := pipe.recv()) > 0:
        start, steps = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            for _ in range(AT_A_TIME if device.type == "cuda" else 1):
                (loss,) = step()
                steps += 1
            loss.item()  # waits for them
        pipe.send((steps, time.perf_counter() - start))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="wrn-16-4")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 3, 5])
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    pipes = []
    for _ in range(max(args.processes)):
        here, there = context.Pipe()
        given = there, args.network, args.batch, torch.device(args.device)
        context.Process(target=take_steps, args=given, daemon=True).start()
        pipes.append(here)
    for pipe in pipes:
        pipe.recv()
    table = Table("processes", "ms of the device for a step", "ms for a step of one of them")
    for count in args.processes:
        for pipe in pipes[:count]:
            pipe.send(args.seconds)
        speeds = [steps / seconds for steps, seconds in (pipe.recv() for pipe in pipes[:count])]
        each = 1000 * count / sum(speeds)
        table.add_row(str(count), f"{each / count:.3f}", f"{each:.3f}")
    Console().print(table)
    for pipe in pipes:
        pipe.send(0)


if __name__ == "__main__":
    main()
