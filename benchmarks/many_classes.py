"""A hundred classes: two images of Fashion-MNIST side by side in the channels, ten by ten classes.

    python benchmarks/many_classes.py --data-dir DATA --processes 2 \\
        --out benchmarks/results/many_classes.json

The study's sets have ten classes. Here each class has a hundred images, of which a share have wrong
labels, and --per-class trusted ones; 16x16 pixels, the small network, 12 epochs, on a CPU. Runs in
--out are not made again; the table is of all of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import mean, stdev

import torch
from rich.console import Console
from rich.table import Table
from study import smaller

from autodo.commands.given import make_network
from autodo.config import Config
from autodo.data import Examples, distort
from autodo.data.sources import load
from autodo.experiment.compare import run_method
from autodo.experiment.methods import OURS
from autodo.experiment.task import Task
from autodo.models.registry import find

CLASSES, SIDE = 100, 16
METHODS = (
    "train + trusted, logit adjustment",
    "logit adjustment, as many steps as AutoDO",
    "cleanlab, then logit adjustment",
    OURS,
)
NOISES = {"none": ("uniform", 0.0), "uniform": ("uniform", 0.4), "next class": ("asymmetric", 0.2)}
"""By name their kind in ``data.distort`` and their rate."""
CONFIG = Config.from_dict(
    {"epochs": 12, "warmup_epochs": 1, "batch_size": 128, "lr": 0.05, "precision": "bfloat16"}
)


def pairs(part: str, count: int, data_dir: Path, generator: torch.Generator) -> Examples:
    """``count`` pairs of images drawn at random, class 10 a + b; the second is mirrored."""
    data = smaller(load("fashion_mnist", part, data_dir=data_dir), None, SIDE)
    a, b = torch.randint(len(data), (2, count), generator=generator)
    first, second = data.images[a], data.images[b].flip(3)
    return dataclasses.replace(
        data,
        images=torch.cat([first, second, torch.zeros_like(first)], 1),
        labels=10 * data.labels[a] + data.labels[b],
        class_names=tuple(map(str, range(CLASSES))),
        ids=tuple(map(str, range(count))),
    )


def task(noise: str, points: int, per_class: int, seed: int, data_dir: Path) -> Task:
    generator = torch.Generator().manual_seed(seed)
    pool = pairs("train", points + 3 * CLASSES * per_class, data_dir, generator)
    rest = torch.arange(points, len(pool))
    of = [rest[pool.labels[rest] == c][:per_class] for c in range(CLASSES)]
    train = pool.subset(torch.arange(points))
    kind, rate = NOISES[noise]
    given = distort.NOISES[kind](train.labels, rate, num_classes=CLASSES, seed=seed)
    return Task(
        train=train.with_labels(given),
        trusted=pool.subset(torch.cat(of)),
        test=pairs("test", 5000, data_dir, generator),
        true_labels=train.labels,
    )


def run(args: argparse.Namespace, noise: str, seed: int, method: str) -> dict[str, object]:
    torch.set_num_threads(1)
    data = task(noise, args.points, args.per_class, seed, args.data_dir)
    network = functools.partial(make_network, find("small_cnn"), data.train, seed)
    config = dataclasses.replace(CONFIG, seed=seed, device="cpu")
    score = run_method(method, data, config, network)
    kept = {k: v for k, v in dataclasses.asdict(score).items() if isinstance(v, float)}
    return {"noise": noise, "trusted": len(data.trusted), "seed": seed, "method": method, **kept}


def show(runs: list[dict[str, object]], console: Console) -> None:
    cells: dict[tuple[str, int, str], list[dict[str, object]]] = {}
    for row in runs:
        key = str(row["noise"]), int(str(row["trusted"])), str(row["method"])
        cells.setdefault(key, []).append(row)
    table = Table("noise", "trusted", "method", "test error, %", "AUC", "labels right, %")
    noises = list(NOISES)
    for key in sorted(cells, key=lambda k: (k[1], noises.index(k[0]), METHODS.index(k[2]))):
        own = cells[key]
        measured = spread(own, "test_error", 100), spread(own, "auc"), spread(own, "corrected", 100)
        table.add_row(key[0], str(key[1]), key[2], *measured)
    console.print(table)


def spread(runs: list[dict[str, object]], name: str, scale: float = 1) -> str:
    values = [scale * float(str(r[name])) for r in runs if isinstance(r.get(name), float)]
    if not values:
        return ""
    digits = 2 if scale > 1 else 3
    deviation = stdev(values) if len(values) > 1 else math.nan
    return f"{mean(values):.{digits}f} ± {deviation:.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--per-class", type=int, default=10, help="trusted points")
    parser.add_argument("--noise", nargs="+", choices=list(NOISES), default=list(NOISES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="JSON of every run")
    args = parser.parse_args()
    runs = json.loads(args.out.read_text())["runs"] if args.out.exists() else []
    done = {(r["noise"], r["trusted"], r["seed"], r["method"]) for r in runs}
    wanted = [
        (noise, seed, method)
        for seed in range(args.seeds)
        for noise in args.noise
        for method in args.methods
        if (noise, CLASSES * args.per_class, seed, method) not in done
    ]
    with ProcessPoolExecutor(args.processes) as pool:
        for future in as_completed([pool.submit(run, args, *each) for each in wanted]):
            runs.append(future.result())
            print(runs[-1], flush=True)
            args.out.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
    show(runs, Console(width=150))


if __name__ == "__main__":
    main()
