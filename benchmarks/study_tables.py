"""The tables of docs/results.md from the runs of the study, and how far its goals are met.

    python benchmarks/study_tables.py benchmarks/results/study_svhn_cifar10.json
    python benchmarks/study_tables.py runs/study        # folders of ``benchmarks/study.py --out``

Only seeds that AutoDO has count, and differences are over the seeds that both have. Where that is
one, nothing is known of the spread, and a cell counts as best by its error alone.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from study import DISTORTIONS, PEOPLE

from autodo.experiment.compare import CLEANLAB, OURS

PLAIN, ADJUSTED = "train + trusted", "train + trusted, logit adjustment"
COLUMNS = (PLAIN, ADJUSTED, CLEANLAB, OURS)
NAMES = {"worse_label": "worst", "aggre_label": "majority"}
UNIFORM = {kind for kind in DISTORTIONS if not kind.endswith("-0.0")}

Runs = dict[str, dict[int, dict[str, Any]]]
"""By method and seed."""


def read(path: Path) -> dict[str, Runs]:
    """The runs of each cell, of one file or of a folder of comparisons."""
    if path.is_dir():
        stored = {f.parent.name: json.loads(f.read_text()) for f in path.glob("*/compare.json")}
    else:
        stored = json.loads(path.read_text())
    found: dict[str, Runs] = {}
    for cell, comparison in stored.items():
        runs = found.setdefault(cell, {})
        seeds = {run["seed"] for run in comparison["runs"] if run["method"] == OURS}
        for run in comparison["runs"]:
            if run["seed"] in seeds:
                runs.setdefault(run["method"], {})[run["seed"]] = run
    return found


def values(runs: Runs, method: str, field: str = "test_error") -> list[float]:
    found = [run.get(field) for run in runs.get(method, {}).values()]
    return [100 * value for value in found if value is not None]


def average(runs: Runs, method: str, field: str = "test_error") -> float:
    found = values(runs, method, field)
    return mean(found) if found else math.nan


def paired(runs: Runs, method: str, other: str) -> tuple[float, float, int]:
    """How much ``method`` has more errors than ``other``, its standard error, and the seeds."""
    seeds = sorted(runs[method].keys() & runs[other].keys())
    errors = [100 * (runs[method][s]["test_error"] - runs[other][s]["test_error"]) for s in seeds]
    spread = stdev(errors) / math.sqrt(len(errors)) if len(errors) > 1 else math.nan
    return mean(errors), spread, len(errors)


def best_other(runs: Runs) -> str:
    return min((m for m in COLUMNS if m in runs and m != OURS), key=lambda m: average(runs, m))


def entry(runs: Runs, method: str) -> str:
    errors = values(runs, method)
    if not errors:
        return "-"
    text = f"{mean(errors):.2f}" + (f" ± {stdev(errors):.2f}" if len(errors) > 1 else "")
    lowest = min(average(runs, m) for m in COLUMNS if m in runs)
    text = f"**{text}**" if mean(errors) == lowest else text
    areas = values(runs, method, "auc")
    return text + (f" ({mean(areas) / 100:.3f})" if areas else "")


def kinds(cells: dict[str, Runs], trusted: int) -> list[tuple[str, str]]:
    wanted = [(d, k) for d in ("svhn", "cifar10") for k in (*DISTORTIONS, *PEOPLE)]
    return [(d, k) for d, k in wanted if f"{d}-{k}-{trusted}" in cells]


def fewer(runs: Runs) -> float:
    """Share of the errors of the best other method that AutoDO does not make."""
    return 1 - average(runs, OURS) / average(runs, best_other(runs))


def table(cells: dict[str, Runs], trusted: int) -> str:
    head = f"| {trusted:,} trusted | {' | '.join(COLUMNS)} | fewer errors than the best other |"
    rows = [head, "|---" * (len(COLUMNS) + 2) + "|"]
    for dataset, kind in kinds(cells, trusted):
        runs = cells[f"{dataset}-{kind}-{trusted}"]
        entries = [entry(runs, method) for method in COLUMNS]
        name = f"{dataset} {NAMES.get(kind, kind)}"
        rows.append(f"| {name} | {' | '.join(entries)} | {round(100 * fewer(runs))}% |")
    return "\n".join(rows)


def labels_table(cells: dict[str, Runs], trusted: int) -> str:
    """What the suggestions make of the labels, and how well wrong ones are ranked."""
    rows = [
        f"| {trusted:,} trusted: cleanlab, AutoDO | labels right after the suggestions | "
        "right labels they change | average precision of wrong labels |",
        "|---|---|---|---|",
    ]
    for dataset, kind in kinds(cells, trusted):
        runs = cells[f"{dataset}-{kind}-{trusted}"]
        if OURS not in runs or not values(runs, OURS, "corrected"):
            continue
        pairs = [
            ", ".join(
                "-" if math.isnan(x) else f"{x / 100:.3f}" if ratio else f"{x:.1f}"
                for x in (average(runs, m, field) for m in (CLEANLAB, OURS))
            )
            for field, ratio in (
                ("corrected", False),
                ("broken", False),
                ("average_precision", True),
            )
        ]
        rows.append(f"| {dataset} {NAMES.get(kind, kind)} | {' | '.join(pairs)} |")
    return "\n".join(rows)


def goals(cells: dict[str, Runs], trusted: list[int]) -> str:
    """The goals of the study, counted; a cell without AutoDO or an alternative does not count."""
    chosen = {
        (d, k, n): cells[f"{d}-{k}-{n}"]
        for n in trusted
        for d, k in kinds(cells, n)
        if OURS in cells[f"{d}-{k}-{n}"] and len(cells[f"{d}-{k}-{n}"]) > 1
    }
    lines, lowest, tied = [], 0, 0
    for (dataset, kind, n), runs in chosen.items():
        difference, spread, seeds = paired(runs, OURS, best_other(runs))
        if difference <= 0:
            lowest += 1
            continue
        tied += difference <= spread
        lines.append(
            f"not lowest: {dataset} {kind}, {n:,} trusted: {difference:+.2f}"
            + (f" ± {spread:.2f} over {seeds} seeds" if seeds > 1 else " in one seed")
            + f" against {best_other(runs)}"
        )
    worse = [
        cell
        for cell, runs in chosen.items()
        if PLAIN in runs and average(runs, OURS) > average(runs, PLAIN)
    ]
    distorted = [runs for (_, kind, _), runs in chosen.items() if kind != "1-0.0"]
    noisy = {c: runs for c, runs in chosen.items() if values(runs, CLEANLAB, "auc")}
    ahead = sum(average(r, OURS, "auc") > average(r, CLEANLAB, "auc") for r in noisy.values())
    uniform = [average(r, OURS, "auc") / 100 for (_, k, _), r in noisy.items() if k in UNIFORM]
    large = sum(round(fewer(runs), 3) >= 0.1 for runs in distorted)
    return "\n".join(
        [
            f"lowest error in {lowest} of {len(chosen)} cells, within a standard error in {tied} "
            "more",
            *lines,
            f"at least 10% fewer errors than the best other in {large} of {len(distorted)} "
            "distorted cells",
            f"more errors than train + trusted in {len(worse)}: "
            + ", ".join(f"{d} {k} {n:,}" for d, k, n in worse),
            f"AUC of wrong labels ahead of cleanlab's in {ahead} of {len(noisy)}; uniform noise: "
            f"at least {min(uniform):.3f}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="the file, or the folder of the study")
    parser.add_argument("--trusted", type=int, nargs="+", default=[10000, 1000, 100])
    args = parser.parse_args()
    cells = read(args.runs)
    for number in args.trusted:
        print(table(cells, number), labels_table(cells, number), sep="\n\n", end="\n\n")
    print(goals(cells, args.trusted))


if __name__ == "__main__":
    main()
