"""What the paper's figures show: the finished runs on one data set and distortion, in numbers.

Each picture has its numbers beside it, as CSV or JSON: curves by epoch, confusion added up over
seeds, accuracy by class, and the features of the first seed's network in the plane, by t-SNE.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autodo.data.distort import Distortion
from autodo.errors import InputError
from autodo.experiment.paper.analysis import load_analysis
from autodo.experiment.paper.cells import CELLS, METHODS, ON_TEST, Cell
from autodo.experiment.paper.results import SeedResult, collect, seed_folder
from autodo.train.run_folder import Metrics, RunFolder


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The finished seeds of one cell."""

    cell: Cell
    results: list[SeedResult]
    histories: list[list[Metrics]]
    """Of each run the epochs that were measured."""
    analyses: list[dict[str, np.ndarray]]
    class_names: list[str]
    hyper_start: int | None
    """E, if something is learned of the data."""

    @property
    def label(self) -> str:
        return (
            f"{self.cell.name} ({ON_TEST})" if self.cell.lambda_from == "test" else (self.cell.name)
        )

    @property
    def imbalanced(self) -> bool:
        """Whether the second half of the classes is rare in training."""
        return Distortion.parse(self.cell.distortion).imbalance > 1

    @property
    def confusion(self) -> np.ndarray:
        """(C, C) test points by true (row) and predicted class, over all seeds."""
        return np.asarray(sum(a["confusion"] for a in self.analyses))

    def mean(self, field: str) -> float:
        return float(np.mean([getattr(r, field) for r in self.results]))

    @property
    def numbers(self) -> tuple[str, str]:
        """Those of the paper's discussion, in words."""
        rare, deviation = self.mean("rare_accuracy"), self.mean("interclass_deviation")
        which = "rare classes" if self.imbalanced else "second half of the classes"
        return (
            f"accuracy {1 - self.mean('test_error'):.1%}, {which} {rare:.1%}",
            f"deviation between classes {deviation:.1%}",
        )


def gather(out: Path, dataset: str, distortion: str) -> list[Runs]:
    """All cells of a data set and distortion that have finished seeds, in the tables' order."""
    cells = {c.folder: c for c in CELLS if (c.dataset, c.distortion) == (dataset, distortion)}
    runs = []
    for cell in cells.values():
        results = collect(out, cell)
        if not results:
            continue
        folders = [seed_folder(out, cell, result.seed) for result in results]
        stored = RunFolder(folders[0]).read_config()
        learns = METHODS[cell.method].startswith("AutoDO")
        runs.append(
            Runs(
                cell=cell,
                results=results,
                histories=[
                    [m for m in RunFolder(folder).read_metrics() if "test_error" in m]
                    for folder in folders
                ],
                analyses=[load_analysis(folder) for folder in folders],
                class_names=stored["data"]["classes"],
                hyper_start=stored["config"]["start_epoch"] if learns else None,
            )
        )
    if not runs:
        raise InputError(
            f"no run of {dataset} {distortion} is finished in '{out}'",
            "figures are drawn from finished runs",
            f"run one first, such as autodo paper {dataset} {distortion} aws",
        )
    return runs


def curves_csv(runs: Sequence[Runs]) -> str:
    """Each measured epoch of each seed in a row: accuracy and losses."""
    rows = [
        (r.cell.name, result.seed, m["epoch"], 1 - m["test_error"], m["test_loss"], m["train_loss"])
        for r in runs
        for result, history in zip(r.results, r.histories, strict=True)
        for m in history
    ]
    return _csv(("method", "seed", "epoch", "test_accuracy", "test_loss", "train_loss"), rows)


def confusion_json(runs: Sequence[Runs]) -> str:
    """Each method's test points by true and predicted class, (C, C), over all seeds."""
    matrices: dict[str, Any] = {
        "rows": "true class",
        "columns": "predicted class",
        "classes": runs[0].class_names,
        "methods": {r.cell.name: r.confusion.tolist() for r in runs},
        "notes": {r.cell.name: r.cell.note for r in runs if r.cell.note},
    }
    return json.dumps(matrices) + "\n"


def classes_csv(runs: Sequence[Runs]) -> str:
    """Each seed in a row: the accuracy of every class, and what it says of rare ones."""
    rows = [
        (
            r.cell.name, result.seed, result.rare_accuracy, result.interclass_deviation,
            *result.class_accuracy,
        )
        for r in runs
        for result in r.results
    ]  # fmt: skip
    names = [f"accuracy of {name}" for name in runs[0].class_names]
    return _csv(("method", "seed", "rare_accuracy", "interclass_deviation", *names), rows)


def embed(analysis: dict[str, np.ndarray]) -> np.ndarray:
    """t-SNE of features (M, D) in the plane, (M, 2)."""
    from sklearn.manifold import TSNE

    features = analysis["features"].astype(np.float32)
    perplexity = min(30.0, (len(features) - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, init="pca", random_state=0)
    return np.asarray(tsne.fit_transform(features))


def tsne_csv(runs: Sequence[Runs], embedded: Sequence[np.ndarray]) -> str:
    """Each embedded test point in a row: its place, label and prediction."""
    rows = [
        (r.cell.name, x, y, int(label), int(predicted))
        for r, points in zip(runs, embedded, strict=True)
        for (x, y), label, predicted in zip(
            points.tolist(), r.analyses[0]["labels"], r.analyses[0]["predictions"], strict=True
        )
    ]
    return _csv(("method", "x", "y", "label", "predicted"), rows)


def _csv(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
