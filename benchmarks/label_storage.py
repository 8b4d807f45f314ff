"""What each storage of the labels costs: time and memory of a step of lambda, and accuracy.

    python benchmarks/label_storage.py --data-dir DATA --json FILE              # on a GPU
    python benchmarks/label_storage.py --only steps --points 100000             # on a CPU
    python benchmarks/label_storage.py --only accuracy --datasets digits --network small_cnn \
        --trusted 200 --epochs 40 --batch-size 128 --lr 0.02 --ways float32 bfloat16 top-8 top-2

A way is a storage, "float32", "bfloat16" or "top-K", and "@host" after it for rows in pinned host
memory. steps: tables of POINTS x CLASSES; one step of the table (rows of a batch read, and
moved), and a whole step of lambda, W and S, from features as a network gives them. On CUDA both are
recorded, as in a run; every step has its own random points. accuracy: AutoDO on a dataset with
distorted labels, test error and how well wrong labels are found. With --json FILE everything
is written as it goes, and the same command takes up what is there.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import gc
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from rich.console import Console
from rich.table import Table as Printed
from torch import Tensor, nn

from autodo.commands.given import make_network
from autodo.config import Config
from autodo.data import Examples
from autodo.data.sources import load
from autodo.experiment.bench.timing import wait
from autodo.experiment.methods import run_autodo
from autodo.experiment.own_task import task_maker
from autodo.hyper.dataset_model import DatasetModel
from autodo.models.registry import find
from autodo.train.devices import choose_device
from autodo.train.files import write_text
from autodo.train.hyper_optimizer import HyperOptimizer
from autodo.train.recorded import WARM_UP, Recorded

STEP_WAYS = ("float32", "float32@host", "bfloat16", "bfloat16@host", "top-8", "top-8@host")
ACCURACY_WAYS = ("float32", "bfloat16", "top-8", "top-4", "top-2", "float32@host")
FEATURES = 512
"""Of ResNet-18's last layer."""
LEARNING_RATE = 0.02


def options(way: str) -> dict[str, Any]:
    """The fields of Config (and arguments of DatasetModel) that a way names."""
    storage, _, place = way.partition("@")
    chosen: dict[str, Any] = {"tables_on": place or "device", "label_storage": storage}
    if storage.startswith("top-"):
        chosen |= {"label_storage": "top-k", "label_top": int(storage[4:])}
    return chosen


class Record:
    """What was measured so far, on disk after each addition."""

    def __init__(self, file: Path | None, setting: dict[str, Any]) -> None:
        self.file, self.setting = file, json.loads(json.dumps(setting))
        self.values: dict[str, dict[str, Any]] = {"steps": {}, "accuracy": {}}
        if file is not None and file.is_file():
            stored = json.loads(file.read_text(encoding="utf-8"))
            if stored["setting"] != self.setting:
                raise SystemExit(f"{file} was measured with another setting; name another file")
            self.values |= {part: stored[part] for part in self.values}

    def add(self, part: str, name: str, values: dict[str, Any]) -> None:
        self.values[part][name] = values
        if self.file is not None:
            text = json.dumps({"setting": self.setting, **self.values}, indent=1)
            write_text(self.file, text + "\n")


# Time and memory


def milliseconds(run: Callable[[Tensor], object], batches: list[Tensor]) -> float:
    """Of one call, over all batches; the device is waited for at both ends only."""
    device = batches[0].device
    for index in batches[: WARM_UP + 2]:
        run(index)
    wait(device)
    start = time.perf_counter()
    for index in batches:
        run(index)
    wait(device)
    return 1e3 * (time.perf_counter() - start) / len(batches)


def measure_steps(way: str, args: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Milliseconds and bytes of one way."""
    gc.collect()
    on_cuda = device.type == "cuda"
    if on_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    generator = torch.Generator().manual_seed(0)
    start = time.perf_counter()
    labels = torch.randint(args.classes, (args.points,), generator=generator)
    data = DatasetModel(labels, num_classes=args.classes, loss="kl", **options(way)).to(device)
    built = time.perf_counter() - start
    table = data.table("label")
    stored = dict(table.named_buffers(recurse=False))
    for buffer in stored.values():
        if not buffer.is_cuda:
            buffer.add_(0)  # a page exists only after it was written
    batches = [
        torch.randint(args.points, (args.batch,), generator=generator).to(device)
        for _ in range(args.repeats)
    ]
    gradient = torch.randn(args.batch, args.classes, generator=generator).to(device)

    def move(index: Tensor) -> tuple[Tensor, ...]:
        rows = table.gather(index)
        table.step(index, gradient, LEARNING_RATE)
        return (rows[:1, :1],)

    result = {
        "table_ms": milliseconds(Recorded(move, device), batches),
        "lambda_ms": milliseconds(Recorded(_lambda_step(data, args, device), device), batches),
        "stored_bytes": sum(buffer.nbytes for buffer in stored.values()),
        "device_bytes": sum(b.nbytes for b in stored.values() if b.is_cuda or not on_cuda),
        "build_s": built,
    }
    if on_cuda:
        result["peak_device_bytes"] = torch.cuda.max_memory_allocated(device)
    return result


def _lambda_step(
    data: DatasetModel, args: argparse.Namespace, device: torch.device
) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """A step of W and S on random features: all of a hyper step but the network."""
    torch.manual_seed(0)
    head = nn.Linear(FEATURES, args.classes).to(device)
    hyper = HyperOptimizer(data, head=head, solver=Config().make_solver(), lr=LEARNING_RATE)
    features, trusted = torch.rand(2, args.batch, FEATURES).to(device)
    targets = torch.randint(args.classes, (args.batch,)).to(device)
    encoder = nn.Identity()

    def step(index: Tensor) -> tuple[Tensor, ...]:
        found = hyper.step(
            encoder, (features, index), (trusted, targets), encoded=True, check=False
        )
        return (found.finite,)

    return step


def steps_table(record: Record) -> Printed:
    setting = record.setting["steps"]
    title = "{points:,} x {classes:,} labels, batch {batch}, {device}".format(**setting)
    printed = Printed(title=title)
    for name in ("way", "table, ms", "lambda, ms", "stored, GB", "on device, GB", "peak, GB"):
        printed.add_column(name, justify="left" if name == "way" else "right")
    for way, row in record.values["steps"].items():
        peak = row.get("peak_device_bytes")
        printed.add_row(
            way,
            f"{row['table_ms']:.3f}",
            f"{row['lambda_ms']:.3f}",
            f"{row['stored_bytes'] / 1e9:.3f}",
            f"{row['device_bytes'] / 1e9:.3f}",
            "-" if peak is None else f"{peak / 1e9:.2f}",
        )
    return printed


# Accuracy


def measure_accuracy(args: argparse.Namespace, record: Record, until: float) -> int:
    """AutoDO with every way, dataset and seed while the time lasts; how many are missing."""
    builder = find(args.network)
    config = Config(epochs=args.epochs, batch_size=args.batch_size, lr=args.lr, device=args.device)

    @functools.cache
    def read(source: str, name: str) -> Examples:
        dataset, part = source.split(":")
        return load(dataset, part, data_dir=args.data_dir, name=name)

    missing = [
        (seed, dataset, way)
        for seed in range(args.seeds)
        for dataset in args.datasets
        for way in args.ways or ACCURACY_WAYS
        if f"{dataset} {way} {seed}" not in record.values["accuracy"]
    ]
    for done, (seed, dataset, way) in enumerate(missing):
        if time.monotonic() > until:
            return len(missing) - done
        make, _ = task_maker(
            read, f"{dataset}:train", str(args.trusted), f"{dataset}:test",
            distortion=args.distortion,
        )  # fmt: skip
        task = make(seed)
        chosen = dataclasses.replace(config, seed=seed, **options(way))
        network = functools.partial(make_network, builder, task.train, seed)
        score, _ = run_autodo(task, chosen, network)
        values = dataclasses.asdict(score)
        del values["confusion"]
        record.add("accuracy", f"{dataset} {way} {seed}", values)
        print(
            f"{dataset} {way} seed {seed}: error {100 * score.test_error:.2f}%, "
            f"AUC {spread([score.auc], 4)}, {score.seconds:.0f} s",
            flush=True,
        )
    return 0


def accuracy_table(record: Record) -> Printed:
    setting = record.setting["accuracy"]
    printed = Printed(
        title="{network}, distortion {distortion}, {trusted:,} trusted, {epochs} epochs".format(
            **setting
        )
    )
    for name in ("dataset", "way", "seeds", "test error %", "AUC of wrong labels", "right labels %",
                 "seconds"):  # fmt: skip
        printed.add_column(name, justify="left" if name in ("dataset", "way") else "right")
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name, row in record.values["accuracy"].items():
        dataset, way, _ = name.split(" ")
        grouped.setdefault((dataset, way), []).append(row)
    for (dataset, way), rows in grouped.items():
        printed.add_row(
            dataset,
            way,
            str(len(rows)),
            spread([100 * row["test_error"] for row in rows], 2),
            spread([row["auc"] for row in rows], 4),
            spread([row["corrected"] and 100 * row["corrected"] for row in rows], 2),
            f"{mean(row['seconds'] for row in rows):.0f}",
        )
    return printed


def spread(values: list[float | None], digits: int) -> str:
    """Mean and deviation of what is known."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    text = f"{mean(known):.{digits}f}"
    return text + (f" ± {stdev(known):.{digits}f}" if len(known) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("steps", "accuracy"))
    parser.add_argument("--ways", nargs="+", help="such as bfloat16 or top-8@host")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--points", type=int, default=1_281_167, help="ImageNet's")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--datasets", nargs="+", default=["cifar10"])
    parser.add_argument("--distortion", default="1-0.4")
    parser.add_argument("--trusted", type=int, default=1000)
    parser.add_argument("--network", default="wrn-16-4")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    device = choose_device(args.device)
    until = time.monotonic() + 60 * args.minutes
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    of = {
        "steps": ("points", "classes", "batch", "repeats"),
        "accuracy": ("distortion", "trusted", "network", "epochs", "batch_size", "lr"),
    }
    setting = {
        part: {"device": name} | {k: getattr(args, k) for k in keys} for part, keys in of.items()
    }
    record, console = Record(args.json, setting), Console(width=120)
    if args.only != "accuracy":
        for way in args.ways or STEP_WAYS:
            if way not in record.values["steps"] and time.monotonic() < until:
                record.add("steps", way, measure_steps(way, args, device))
        console.print(steps_table(record))
    if args.only != "steps":
        left = measure_accuracy(args, record, until)
        console.print(accuracy_table(record))
        print(f"{left} runs are missing" if left else "complete")


if __name__ == "__main__":
    main()
