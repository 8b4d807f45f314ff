"""How long does a set take to decode, and how long to load once it is in the cache?

    python benchmarks/cache.py DATA                 # e.g. a folder of SVHN's Parquet files
    python benchmarks/cache.py DATA --split train --repeats 5

Each split is read without a cache, read into an empty cache, and loaded from it: with the file
warm (pages of an earlier read still in memory) and, where the system lets go of them, cold. The
loaded pixels are then copied, as they are on their way to a device. The second table decodes the
first images of the set in one thread, in threads and in processes; it needs idle cores.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from PIL import Image
from rich.console import Console
from rich.table import Table

from autodo.data.decode import available_cores
from autodo.data.sources import load
from autodo.data.sources.layouts import Wanted, open_path

GROUP = 32


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def forget(folder: Path) -> bool:
    """Ask the system to drop the pages of every file below ``folder``."""
    if not hasattr(os, "posix_fadvise"):
        return False
    for file in folder.rglob("*.npy"):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def measure(data: Path, split: str | None, repeats: int) -> list[tuple[str, str, float]]:
    """(what, of how many images, seconds)."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name)
        seconds, examples = timed(lambda: load(data, split, cache=False))
        size = f"{len(examples):,} of {'x'.join(map(str, examples.image_shape))}"
        rows.append(("decode into memory", size, seconds))
        expected = int(examples.images.sum(dtype=torch.int64))
        del examples
        rows.append(
            ("decode into the cache", size, timed(lambda: load(data, split, cache=cache))[0])
        )
        for state in ("warm", "cold"):
            loads, copies = [], []
            for _ in range(repeats):
                if state == "cold" and not forget(cache):
                    break
                seconds, examples = timed(lambda: load(data, split, cache=cache))
                loads.append(seconds)
                seconds, images = timed(examples.images.clone)
                copies.append(loads[-1] + seconds)
                assert int(images.sum(dtype=torch.int64)) == expected, "other pixels in the cache"
                del examples, images
            if loads:
                rows.append((f"load from the cache, {state}", size, statistics.median(loads)))
                rows.append((f"load and copy the pixels, {state}", size, statistics.median(copies)))
    return rows


def decode_group(group: list[bytes]) -> np.ndarray:
    images = []
    for data in group:
        with Image.open(io.BytesIO(data)) as image:
            images.append(np.asarray(image.convert("RGB").resize((32, 32))))
    return np.stack(images)


def compare(data: Path, split: str | None, count: int) -> list[tuple[str, float]]:
    """Seconds to decode ``count`` images in threads and in processes, starting them included."""
    source: Any = open_path(data, split, Wanted())
    if not hasattr(source, "_items"):
        return []  # not Parquet
    held = [item.data for item in islice(source._items(), count)]
    groups = [held[k : k + GROUP] for k in range(0, len(held), GROUP)]
    cores = available_cores()

    def pooled(make: Callable[[], Executor]) -> float:
        def work() -> None:
            with make() as pool:
                for _ in pool.map(decode_group, groups):
                    pass

        return statistics.median(timed(work)[0] for _ in range(3))

    ways: dict[str, Callable[[], Executor]] = {
        "1 thread": lambda: ThreadPoolExecutor(1),
        f"{cores} threads": lambda: ThreadPoolExecutor(cores),
    }
    for kind in multiprocessing.get_all_start_methods():
        if kind in ("fork", "spawn"):
            context = multiprocessing.get_context(kind)
            ways[f"{cores} processes ({kind})"] = lambda c=context: ProcessPoolExecutor(cores, c)
    return [(name, pooled(make)) for name, make in ways.items()]


def main(
    data: Annotated[Path, typer.Argument(help="A set that autodo reads.")],
    split: Annotated[
        list[str] | None, typer.Option(help="Splits to measure, one after the other.")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Loads from the cache; the median counts.")] = 5,
    compared: Annotated[int, typer.Option(help="Images for threads against processes.")] = 10_000,
) -> None:
    """Time decoding, and loading from the cache."""
    printed = Table(title=f"{data.name}, {available_cores()} cores")
    for heading in ("split", "what", "images", "seconds"):
        printed.add_column(heading, justify="right" if heading == "seconds" else "left")
    splits: list[str | None] = list(split) if split else ["train", "test"]
    for part in splits:
        for what, size, seconds in measure(data, part, repeats):
            printed.add_row(part or "", what, size, f"{seconds:.3f}")
        printed.add_section()
    Console(width=110).print(printed)

    rows = compare(data, splits[0], compared)
    if rows:
        ways = Table(title=f"decoding the first {compared:,} images of {splits[0]}, median of 3")
        ways.add_column("with")
        ways.add_column("seconds", justify="right")
        for name, seconds in rows:
            ways.add_row(name, f"{seconds:.2f}")
        Console(width=110).print(ways)


if __name__ == "__main__":
    typer.run(main)
