"""Small digit sets: how many wrong labels are put right, and how many right ones changed.

    python benchmarks/small_sets.py --cells 200,1-0.1,20 200,1-0.1,100 --way now --json FILE

A cell is points, distortion, trusted points; rare classes are cut from so many points. Runs are
kept under the name of a way, so that changes of the code can be compared in pairs: the table has
the differences to the first way of the file. Runs that the file has are not made again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch

from autodo.commands.given import make_network
from autodo.config import Config
from autodo.data import Examples, stratified_split
from autodo.data.sources import load
from autodo.experiment.methods import run_autodo
from autodo.experiment.own_task import task_maker
from autodo.models.registry import find


def one(job: tuple[str, str, int]) -> dict[str, Any]:
    """One run; a job is (cell, way, seed)."""
    cell, way, seed = job
    points, distortion, trusted = cell.split(",")
    torch.set_num_threads(1)

    def read(source: str, name: str) -> Examples:
        data = load(*source.split(":"), name=name)
        if name != "train":
            return data
        _, some = stratified_split(data.labels, int(points) + int(trusted), seed=100 + seed)
        return data.subset(some)

    make, _ = task_maker(read, "digits:train", trusted, "digits:test", distortion=distortion)
    task = make(seed)
    config = Config(
        epochs=60, warmup_epochs=5, batch_size=128, lr=0.02, seed=seed, device="cpu",
        measure_every=60,
    )  # fmt: skip
    score, result = run_autodo(
        task, config, partial(make_network, find("small_cnn"), task.train, seed)
    )
    suggested, true = np.asarray(result.points["suggested_label"]), task.true_labels.numpy()
    wrong = task.wrong.numpy()
    return {
        "cell": cell,
        "way": way,
        "seed": seed,
        "points": len(wrong),
        "wrong": int(wrong.sum()),
        "found": int((suggested == true)[wrong].sum()),
        "broken": int((suggested != true)[~wrong].sum()),
        "auc": score.auc,
        "average_precision": score.average_precision,
        "test_error": score.test_error,
    }


def spread(values: list[float], digits: int) -> str:
    return f"{mean(values):.{digits}f} ± {stdev(values) if len(values) > 1 else 0:.{digits}f}"


def rows(runs: list[dict[str, Any]], cells: Iterable[str]) -> Iterable[str]:
    """Lines of a table in Markdown, with paired differences to the first way."""
    ways = list(dict.fromkeys(run["way"] for run in runs))
    for cell, way in product(cells, ways):
        found = {r["seed"]: r for r in runs if (r["cell"], r["way"]) == (cell, way)}
        first = {r["seed"]: r for r in runs if (r["cell"], r["way"]) == (cell, ways[0])}
        if not found:
            continue
        shown = [cell, way, f"{mean(r['wrong'] for r in found.values()):.1f}"]
        for name, scale in (("found", 1), ("broken", 1), ("test_error", 100)):
            shown.append(f"{scale * mean(r[name] for r in found.values()):.2f}")
            shared = found.keys() & first.keys()
            shown.append(spread([scale * (found[s][name] - first[s][name]) for s in shared], 2))
        aucs = [r["auc"] for r in found.values() if r["auc"] is not None]
        yield f"| {' | '.join([*shown, f'{mean(aucs):.4f}' if aucs else ''])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", nargs="+", required=True, metavar="POINTS,DISTORTION,TRUSTED")
    parser.add_argument("--way", required=True, help="what runs of the present code are called")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(8)))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    runs = json.loads(args.json.read_text()) if args.json.exists() else []
    made = {(r["cell"], r["way"], r["seed"]) for r in runs}
    jobs = [
        (cell, args.way, seed)
        for cell in args.cells
        for seed in args.seeds
        if (cell, args.way, seed) not in made
    ]
    with ProcessPoolExecutor(args.processes) as pool:
        for run in pool.map(one, jobs):
            runs.append(run)
            args.json.write_text("[\n" + ",\n".join(map(json.dumps, runs)) + "\n]\n")
    print("\n".join(rows(runs, args.cells)))


if __name__ == "__main__":
    main()
