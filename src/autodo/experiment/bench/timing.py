"""How long a step takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

RUNS = 3
"""Runs of which the median counts."""
WARM_UP = 6
"""Steps before the first run: kernels are chosen, graphs recorded, memory is there."""


def milliseconds(step: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median over a few runs of ``repeats`` steps, after what has to be done once.

    >>> milliseconds(lambda: None, torch.device("cpu"), 10) < 100
    True
    """
    for _ in range(WARM_UP):
        step()
    times = []
    for _ in range(RUNS):
        wait(device)
        start = time.perf_counter()
        for _ in range(repeats):
            step()
        wait(device)
        times.append((time.perf_counter() - start) / repeats * 1e3)
    return statistics.median(times)


def wait(device: torch.device) -> None:
    """For all that was asked of the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
