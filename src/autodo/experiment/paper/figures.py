"""The paper's figures from finished runs: learning curves, confusion, t-SNE, accuracy by class.

One picture compares all methods that were run on one data set and distortion, as PNG and SVG, with
its numbers as CSV or JSON beside it. Curves and bars are means over seeds, with bands from the
lowest to the highest seed; confusion adds up the seeds; t-SNE shows the first of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autodo.errors import InputError
from autodo.experiment.paper.analysis import class_accuracy
from autodo.experiment.paper.cells import METHODS, Cell
from autodo.experiment.paper.figure_numbers import (
    Runs,
    classes_csv,
    confusion_json,
    curves_csv,
    embed,
    gather,
    tsne_csv,
)
from autodo.train.files import write_text, write_with

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
NAMED_CLASSES = 20
"""Up to so many classes are named one by one; more would not be readable."""
_COLOURS = dict(
    zip(
        METHODS,
        ("#7f7f7f", "#bcbd22", "#ff7f0e", "#8c564b", "#17becf", "#2ca02c", "#1f77b4", "#d62728"),
        strict=True,
    )
)
_DASHES = {None: "-", 10: ":", 150: "--", 190: "-."}
_CURVES = {
    "test accuracy, %": lambda m: 100 * (1 - m["test_error"]),
    "test loss": lambda m: m["test_loss"],
    "training loss, each method's own": lambda m: m["train_loss"],
}


def check_matplotlib() -> None:
    """Raise, with the cure, where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise InputError(
            "figures need matplotlib",
            f"it cannot be imported here: {error}",
            "install it with pip install matplotlib, or leave --figures out",
        ) from error


def draw(out: str | Path, dataset: str, distortion: str) -> list[Path]:
    """Draw every figure of the finished runs on these data; the files that were written."""
    check_matplotlib()
    out = Path(out)
    runs = gather(out, dataset, distortion)
    folder = out / dataset / distortion / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    title = f"{dataset}, imbalance-noise {distortion}{_scale(out, runs[0].cell)}"
    write_text(folder / "curves.csv", curves_csv(runs))
    write_text(folder / "confusion.json", confusion_json(runs))
    write_text(folder / "classes.csv", classes_csv(runs))
    embedded = [embed(r.analyses[0]) for r in runs]
    write_text(folder / "tsne.csv", tsne_csv(runs, embedded))
    pictures = {
        "curves": _curves(runs, title),
        "confusion": _confusion(runs, title),
        "classes": _classes(runs, title),
        "tsne": _tsne(runs, embedded, title),
    }
    files = [_save(folder / name, figure) for name, figure in pictures.items()]
    return [file for pair in files for file in pair] + [
        folder / name for name in ("curves.csv", "confusion.json", "classes.csv", "tsne.csv")
    ]


def _scale(out: Path, cell: Cell) -> str:
    scale = json.loads((out / cell.folder / "cell.json").read_text(encoding="utf-8"))["scale"]
    return "" if scale == "full" else f" (scale {scale}: not the paper's protocol)"


def _curves(runs: Sequence[Runs], title: str) -> Figure:
    figure, axes = _figure(title, rows=3, columns=1, width=8, height=3)
    for axis, (name, value) in zip(axes, _CURVES.items(), strict=True):
        for r in runs:
            curves = np.array([[value(m) for m in history] for history in r.histories])
            epochs = [m["epoch"] for m in r.histories[0]]
            style: dict[str, Any] = {
                "color": _COLOURS[r.cell.method],
                "ls": _DASHES[r.cell.start_epoch],
            }
            if r.cell.lambda_from != "trusted":
                style["ls"] = (0, (1, 1))
            axis.plot(epochs, curves.mean(0), label=r.label, lw=1.6, **style)
            if len(curves) > 1:
                axis.fill_between(
                    epochs, curves.min(0), curves.max(0), color=style["color"], alpha=0.15, lw=0
                )
        starts = sorted({r.hyper_start for r in runs if r.hyper_start})
        for start in starts:
            axis.axvline(start, color="0.6", lw=0.8, ls=(0, (4, 4)), zorder=0)
            axis.annotate(
                f"E = {start}", (start, 1), xycoords=("data", "axes fraction"),
                xytext=(3, -11), textcoords="offset points", color="0.4", fontsize=8,
            )  # fmt: skip
        axis.set_ylabel(name)
        axis.grid(alpha=0.25)
        axis.margins(x=0.01)
    axes[-1].set_xlabel("epoch")
    axes[0].legend(fontsize=8, ncols=2, loc="lower right", framealpha=0.9)
    return figure


def _confusion(runs: Sequence[Runs], title: str) -> Figure:
    columns = min(len(runs), 3)
    figure, axes = _figure(
        f"{title}\ntest points by true (row) and predicted class, % of the row",
        rows=-(-len(runs) // columns), columns=columns, width=5, height=5.8,
    )  # fmt: skip
    names = runs[0].class_names
    for axis, r in zip(axes, runs, strict=False):
        share = 100 * r.confusion / np.maximum(r.confusion.sum(1, keepdims=True), 1)
        axis.imshow(share, cmap="Blues", vmin=0, vmax=100)
        axis.set_title("\n".join((r.label, *r.numbers)), fontsize=9)
        axis.set_xlabel("predicted")
        axis.set_ylabel("true")
        if r.imbalanced:  # below the line: the rare classes
            axis.axhline(len(names) // 2 - 0.5, color="0.3", lw=0.8, ls="--")
        if len(names) <= NAMED_CLASSES:
            rotation = 90 if max(map(len, names)) > 2 else 0
            axis.set_xticks(range(len(names)), names, fontsize=8, rotation=rotation)
            axis.set_yticks(range(len(names)), names, fontsize=8)
            for (i, j), value in np.ndenumerate(share):
                if value >= 0.5:
                    colour = "white" if value > 55 else "black"
                    axis.text(
                        j, i, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=7
                    )
    return figure


def _classes(runs: Sequence[Runs], title: str) -> Figure:
    figure, (axis,) = _figure(
        f"{title}: test accuracy of each class",
        rows=1,
        columns=1,
        width=10,
        height=3.6 + 0.2 * len(runs),
    )
    names = runs[0].class_names
    width = 0.84 / len(runs)
    for k, r in enumerate(runs):
        accuracy = 100 * class_accuracy(r.confusion)
        place = np.arange(len(names)) + (k - (len(runs) - 1) / 2) * width
        label = f"{r.label}: {', '.join(r.numbers)}"
        hatch = "///" if r.cell.start_epoch or r.cell.lambda_from != "trusted" else None
        axis.bar(
            place, accuracy, width, color=_COLOURS[r.cell.method], label=label, hatch=hatch,
            edgecolor="white", linewidth=0.3,
        )  # fmt: skip
    if runs[0].imbalanced:
        half = len(names) // 2 - 0.5
        axis.axvline(half, color="0.3", lw=0.8, ls="--")
        axis.annotate(
            "rare in training →", (half, 1), xycoords=("data", "axes fraction"),
            xytext=(4, 4), textcoords="offset points", fontsize=8, color="0.3",
        )  # fmt: skip
    if len(names) <= NAMED_CLASSES:
        axis.set_xticks(range(len(names)), names)
    axis.set_xlabel("class")
    axis.set_ylabel("test accuracy, %")
    axis.set_ylim(0, 100)
    axis.margins(x=0.01)
    axis.grid(axis="y", alpha=0.25)
    axis.set_axisbelow(True)
    figure.legend(fontsize=8, loc="outside lower center", frameon=False)
    return figure


def _tsne(runs: Sequence[Runs], embedded: Sequence[np.ndarray], title: str) -> Figure:
    from matplotlib import colormaps
    from matplotlib.lines import Line2D

    columns = min(len(runs), 3)
    figure, axes = _figure(
        f"{title}\nt-SNE of the features before the head, test points by true class",
        rows=-(-len(runs) // columns), columns=columns, width=5, height=5,
    )  # fmt: skip
    names = runs[0].class_names
    palette = colormaps["tab10" if len(names) <= 10 else "gist_rainbow"]
    colours = [palette(c if len(names) <= 10 else c / (len(names) - 1)) for c in range(len(names))]
    for axis, r, points in zip(axes, runs, embedded, strict=False):
        labels, predicted = r.analyses[0]["labels"], r.analyses[0]["predictions"]
        shade = np.array(colours)[labels]
        right = labels == predicted
        axis.scatter(*points[right].T, c=shade[right], s=5, linewidths=0, alpha=0.6)
        axis.scatter(*points[~right].T, c=shade[~right], s=22, linewidths=0.5, edgecolors="black")
        axis.set_title(f"{r.label}\n{int((~right).sum())} of {len(right)} wrong", fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
    handles = [
        Line2D([], [], ls="", marker="o", ms=3, color="0.4", label="right"),
        Line2D([], [], ls="", marker="o", ms=6, color="0.6", mec="black", label="wrong"),
    ]
    if len(names) <= NAMED_CLASSES:
        handles += [
            Line2D([], [], ls="", marker="o", ms=6, color=c, label=name)
            for c, name in zip(colours, names, strict=True)
        ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(12, len(handles)), fontsize=9
    )
    return figure


def _figure(
    title: str, *, rows: int, columns: int, width: float, height: float
) -> tuple[Figure, list[Any]]:
    """A figure without the global state of pyplot, and its axes row by row, unused ones hidden."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    figure.suptitle(title, fontsize=11)
    return figure, axes


def _save(path: Path, figure: Figure) -> list[Path]:
    import matplotlib

    files = [path.with_suffix(f".{format_}") for format_ in FORMATS]
    for axis in figure.axes:
        if not axis.has_data():
            axis.set_visible(False)
    # Text stays text, and neither the date nor a random salt makes two equal figures differ.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.name}):
        for file, format_ in zip(files, FORMATS, strict=True):
            metadata = {"Date": None} if format_ == "svg" else None

            def write(stream: Any, format_: str = format_, metadata: Any = metadata) -> None:
                figure.savefig(
                    stream, format=format_, dpi=150, metadata=metadata, bbox_inches="tight"
                )

            write_with(file, write)
    return files
