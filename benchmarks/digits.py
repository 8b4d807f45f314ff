"""The demo's comparison over seeds: means, deviations and paired differences.

    python benchmarks/digits.py                  # noise 0, 0.2 and 0.4, 8 seeds, all methods
    python benchmarks/digits.py --set label_lr=0.1 --only AutoDO

One network, one budget and one configuration for every noise level. Writes every run's
numbers as JSON to --out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tomllib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean, stdev

import torch
from rich.console import Console
from rich.table import Table

from autodo.config import Config
from autodo.experiment.demo import digits_model
from autodo.experiment.methods import BASELINES, Score, run_autodo, run_baseline
from autodo.experiment.task import digits_task

METHODS = (*BASELINES, "AutoDO")


def one(job: tuple[str, float, int, int, dict[str, object]]) -> Score:
    """One method on one task; a job is (method, noise, trusted, seed, settings)."""
    method, noise, trusted, seed, settings = job
    torch.set_num_threads(1)
    task = digits_task(noise=noise, trusted=trusted, seed=seed)
    config = Config.from_dict({**settings, "seed": seed, "device": "cpu"})
    if method == "AutoDO":
        return run_autodo(task, config, lambda: digits_model(seed))[0]
    return run_baseline(method, task, config, lambda: digits_model(seed))


def spread(values: list[float]) -> str:
    """Mean and deviation in percent."""
    deviation = stdev(values) if len(values) > 1 else 0.0
    return f"{100 * mean(values):.2f} ± {100 * deviation:.2f}"


def table(noise: float, scores: dict[str, list[Score]]) -> Table:
    seeds = len(next(iter(scores.values())))
    out = Table(title=f"digits, noise {noise}, {seeds} seeds: test error %")
    columns = ("method", "all", "rare half", "AutoDO minus method", "AUC", "labels right", "broken")
    for k, column in enumerate((*columns, "seconds")):
        out.add_column(column, justify="left" if k == 0 else "right")
    for method, runs in scores.items():
        paired = "-"
        if method != "AutoDO" and "AutoDO" in scores:
            pairs = zip(scores["AutoDO"], runs, strict=True)
            paired = spread([ours.test_error - theirs.test_error for ours, theirs in pairs])
        found = [r for r in runs if r.auc is not None]
        out.add_row(
            method,
            spread([r.test_error for r in runs]),
            spread([r.rare_error for r in runs]),
            paired,
            f"{mean(r.auc for r in found):.4f}" if found else "-",
            spread([r.corrected for r in found]) if found else "-",
            spread([r.broken for r in found]) if found else "-",
            f"{mean(r.seconds for r in runs):.1f}",
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.2, 0.4])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--trusted", type=int, default=200)
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--set", dest="settings", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, help="JSON of every run")
    args = parser.parse_args()
    settings = tomllib.loads("\n".join(args.settings))
    console = Console(width=120)
    jobs = [
        (method, noise, args.trusted, seed, settings)
        for noise in args.noise
        for method in args.only
        for seed in range(args.seeds)
    ]
    with ProcessPoolExecutor(args.processes) as pool:
        results = dict(zip([j[:4] for j in jobs], pool.map(one, jobs), strict=True))
    rows = []
    for noise in args.noise:
        scores = {
            method: [results[method, noise, args.trusted, s] for s in range(args.seeds)]
            for method in args.only
        }
        console.print(table(noise, scores))
        for method, runs in scores.items():
            for seed, run in enumerate(runs):
                key = {"method": method, "noise": noise, "trusted": args.trusted, "seed": seed}
                rows.append({**key, **dataclasses.asdict(run)})
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps({"settings": settings, "runs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
