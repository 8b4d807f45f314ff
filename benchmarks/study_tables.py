"""The tables of docs/results.md from the runs of the study, and how far its goals are met.

    python benchmarks/study_tables.py benchmarks/results/study_svhn_cifar10.json
    python benchmarks/study_tables.py runs/study        # folders of ``benchmarks/study.py --out``
    python benchmarks/study_tables.py FILE --add runs/study     # keep new runs in the file first

Only seeds that AutoDO has count, and differences are over the seeds that both have. Where that is
one, nothing is known of the spread, and a cell counts as best by its error alone.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import mean, stdev

from study import DISTORTIONS, PEOPLE, Cell, in_short

from autodo.experiment.compare import stored_scores
from autodo.experiment.methods import CLEANLAB, METHODS, OURS
from autodo.experiment.score import Scores
from autodo.experiment.verdict import differences
from autodo.train.files import write_text

PLAIN = "train + trusted"
NAMES = {"worse_label": "worst", "aggre_label": "majority"}
SAME = ("train", "trusted", "test", "model")
"""What runs of one cell must have in common; where the data lay, of which the fingerprint and
labels of people tell, is not among it."""
UNIFORM = {kind for kind in DISTORTIONS if not kind.endswith("-0.0")}


def read(path: Path) -> dict[Cell, Scores]:
    """The runs of each cell, of one file or of a folder of comparisons, in the study's order."""
    if path.is_dir():
        stored = {f.parent.name: json.loads(f.read_text()) for f in path.glob("*/compare.json")}
    else:
        stored = json.loads(path.read_text())
    order = {kind: k for k, kind in enumerate((*DISTORTIONS, *PEOPLE))}
    found: dict[Cell, Scores] = {}
    for folder, comparison in stored.items():
        dataset, _, rest = folder.partition("-")
        kind, _, trusted = rest.rpartition("-")
        scores = stored_scores(comparison["runs"])
        seeds = scores.get(OURS, {}).keys()
        kept = {m: {s: r for s, r in runs.items() if s in seeds} for m, runs in scores.items()}
        found[Cell(dataset, kind, int(trusted))] = {m: runs for m, runs in kept.items() if runs}
    datasets = ("svhn", "cifar10", "fashion_mnist")
    wanted = [cell for cell in found if cell.dataset in datasets and cell.distortion in order]
    wanted.sort(key=lambda cell: (datasets.index(cell.dataset), order[cell.distortion]))
    return {cell: found[cell] for cell in wanted if OURS in found[cell] and len(found[cell]) > 1}


def add(file: Path, folder: Path) -> None:
    """Keep the runs of a folder of comparisons in a file too; where it has one, the new counts."""
    stored = json.loads(file.read_text()) if file.exists() else {}
    for path in sorted(folder.glob("*/compare.json")):
        name, new = path.parent.name, json.loads(path.read_text())
        before = stored.get(name, {**new, "runs": []})
        other = [k for k in SAME if before["setting"][k] != new["setting"][k]]
        if other:
            raise SystemExit(f"{path} is of another {other[0]} than {name} in {file}")
        runs = {(run["method"], run["seed"]): run for run in (*before["runs"], *new["runs"])}
        stored[name] = {**before, "runs": list(runs.values())}
    write_text(file, json.dumps(stored, separators=(",", ":")) + "\n")


def average(runs: Scores, method: str, field: str = "test_error") -> float:
    values = [getattr(run, field) for run in runs.get(method, {}).values()]
    found = [100 * value for value in values if value is not None]
    return mean(found) if found else math.nan


def best_other(runs: Scores) -> str:
    return min((m for m in METHODS if m in runs and m != OURS), key=lambda m: average(runs, m))


def entry(runs: Scores, method: str) -> str:
    if method not in runs:
        return "-"
    error, auc = in_short(list(runs[method].values()))
    lowest = min(average(runs, m) for m in METHODS if m in runs)
    return (f"**{error}**" if average(runs, method) == lowest else error) + auc


def name_of(cell: Cell) -> str:
    return f"{cell.dataset} {NAMES.get(cell.distortion, cell.distortion)}"


def fewer(runs: Scores) -> float:
    """Share of the errors of the best other method that AutoDO does not make."""
    return 1 - average(runs, OURS) / average(runs, best_other(runs))


def table(cells: dict[Cell, Scores], trusted: int) -> str:
    cells = {cell: runs for cell, runs in cells.items() if cell.trusted == trusted}
    columns = [method for method in METHODS if any(method in runs for runs in cells.values())]
    head = f"| {trusted:,} trusted | {' | '.join(columns)} | fewer errors than the best other |"
    rows = [head, "|---" * (len(columns) + 2) + "|"]
    for cell, runs in cells.items():
        entries = " | ".join(entry(runs, method) for method in columns)
        rows.append(f"| {name_of(cell)} | {entries} | {round(100 * fewer(runs))}% |")
    return "\n".join(rows)


def labels_table(cells: dict[Cell, Scores], trusted: int) -> str:
    """What the suggestions make of the labels, and how well wrong ones are ranked."""
    rows = [
        f"| {trusted:,} trusted: cleanlab, AutoDO | labels right after the suggestions | "
        "right labels they change | average precision of wrong labels |",
        "|---|---|---|---|",
    ]

    def both(runs: Scores, field: str, scale: float, digits: int) -> str:
        values = (average(runs, method, field) / scale for method in (CLEANLAB, OURS))
        return ", ".join("-" if math.isnan(x) else f"{x:.{digits}f}" for x in values)

    for cell, runs in cells.items():
        if cell.trusted == trusted and not math.isnan(average(runs, OURS, "corrected")):
            labels = [both(runs, field, 1, 1) for field in ("corrected", "broken")]
            precision = both(runs, "average_precision", 100, 3)
            rows.append(f"| {name_of(cell)} | {' | '.join([*labels, precision])} |")
    return "\n".join(rows)


def goals(cells: dict[Cell, Scores]) -> str:
    """The goals of the study, counted."""
    if not cells:
        return "no cell of SVHN or CIFAR-10 has runs of AutoDO and of another method"
    lines, lowest, tied = [], 0, 0
    for cell, runs in cells.items():
        gaps = [100 * gap for gap in differences(runs, best_other(runs))]
        if mean(gaps) <= 0:
            lowest += 1
            continue
        error = stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
        tied += mean(gaps) <= error
        how = f" ± {error:.2f} over {len(gaps)} seeds" if len(gaps) > 1 else " in one seed"
        where = f"{cell.dataset} {cell.distortion}, {cell.trusted:,} trusted"
        lines.append(f"not lowest: {where}: {mean(gaps):+.2f}{how} against {best_other(runs)}")
    worse = [
        f"{cell.dataset} {cell.distortion} {cell.trusted:,}"
        for cell, runs in cells.items()
        if average(runs, OURS) > average(runs, PLAIN)
    ]
    distorted = [runs for cell, runs in cells.items() if cell.distortion != "1-0.0"]
    large = sum(round(fewer(runs), 3) >= 0.1 for runs in distorted)
    areas = {c: [average(r, m, "auc") / 100 for m in (OURS, CLEANLAB)] for c, r in cells.items()}
    noisy = {cell: pair for cell, pair in areas.items() if not math.isnan(pair[1])}
    ahead = sum(ours > theirs for ours, theirs in noisy.values())
    uniform = [ours for cell, (ours, _) in noisy.items() if cell.distortion in UNIFORM]
    return "\n".join(
        [
            f"lowest error in {lowest} of {len(cells)} cells, within a standard error in {tied} "
            "more",
            *lines,
            f"at least 10% fewer errors than the best other in {large} of {len(distorted)} "
            "distorted cells",
            f"more errors than train + trusted in {len(worse)}: {', '.join(worse)}",
            f"AUC of wrong labels ahead of cleanlab's in {ahead} of {len(noisy)}; uniform noise: "
            f"at least {min(uniform):.3f}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="the file, or the folder of the study")
    parser.add_argument("--trusted", type=int, nargs="+", default=[10000, 1000, 100])
    parser.add_argument("--add", type=Path, metavar="FOLDER", help="runs to keep in the file first")
    args = parser.parse_args()
    if args.add is not None:
        add(args.runs, args.add)
    found = read(args.runs)
    cells = {c: runs for n in args.trusted for c, runs in found.items() if c.trusted == n}
    for number in args.trusted:
        print(table(cells, number), labels_table(cells, number), sep="\n\n", end="\n\n")
    print(goals(cells))


if __name__ == "__main__":
    main()
