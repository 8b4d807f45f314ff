"""Does a step of a table cost the same whatever the number of rows?

    python benchmarks/table_rows.py            # all sizes, about 20 seconds, 2 GB
    python benchmarks/table_rows.py --sizes 10000 --sizes 1000000

One step is ``gather`` and ``step`` of a batch of random rows. Every table is touched once before
(a fresh page costs a fault at its first use, not later), every repeat has its own indices, and the
sizes take turns within each repeat, so that a noisy machine is noisy for all of them.
"""

from __future__ import annotations

import statistics
import time
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table as Printed

from autodo.hyper.optimizers import OPTIMIZERS
from autodo.hyper.table import Table

SIZES = [10_000, 100_000, 1_000_000, 10_000_000]
LEARNING_RATE = 0.01


def make_table(rows: int, columns: int, optimizer: str) -> Table:
    table = Table(torch.zeros(rows, columns), optimizer)
    for buffer in table.buffers():
        buffer.add_(0)  # a page of zeros exists only after it was written
    return table


def step_seconds(table: Table, index: torch.Tensor, gradient: torch.Tensor) -> float:
    start = time.perf_counter()
    table.gather(index)
    table.step(index, gradient, LEARNING_RATE)
    return time.perf_counter() - start


def measure(
    sizes: list[int], columns: int, optimizer: str, batch: int, repeats: int
) -> dict[int, float]:
    """Median seconds of one step for every number of rows."""
    generator = torch.Generator().manual_seed(0)
    tables = {size: make_table(size, columns, optimizer) for size in sizes}
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    warm_up = max(1, repeats // 10)
    for repeat in range(warm_up + repeats):
        for size, table in tables.items():
            index = torch.randint(size, (batch,), generator=generator)
            gradient = torch.randn(batch, columns, generator=generator)
            elapsed = step_seconds(table, index, gradient)
            if repeat >= warm_up:
                seconds[size].append(elapsed)
    return {size: statistics.median(times) for size, times in seconds.items()}


def main(
    sizes: Annotated[list[int] | None, typer.Option(help="Numbers of rows to compare.")] = None,
    batch: Annotated[int, typer.Option(help="Rows of one step.")] = 256,
    repeats: Annotated[int, typer.Option(help="Steps per size; the median is printed.")] = 2000,
) -> None:
    """Time one table step for several numbers of rows."""
    torch.set_num_threads(1)
    sizes = sizes or SIZES
    printed = Printed(title=f"one step of {batch} random rows, median of {repeats}, 1 CPU thread")
    for heading in ("optimizer", "columns", "rows", "ms", f"ratio to {sizes[0]:,}"):
        printed.add_column(heading, justify="left" if heading == "optimizer" else "right")
    for optimizer in OPTIMIZERS:
        for columns in (1, 10):
            medians = measure(sizes, columns, optimizer, batch, repeats)
            for size, median in medians.items():
                ratio = median / medians[sizes[0]]
                printed.add_row(
                    optimizer, str(columns), f"{size:,}", f"{median * 1e3:.4f}", f"{ratio:.2f}"
                )
            printed.add_section()
    Console().print(printed)


if __name__ == "__main__":
    typer.run(main)
