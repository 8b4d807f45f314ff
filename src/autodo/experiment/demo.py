"""``autodo demo``: AutoDO beside what a user would do instead, on real handwritten digits.

scikit-learn's digits, the classes 5 to 9 made ten times rarer, 40% of the labels drawn at
random, 200 trusted points. One table, ten wrong labels that were found, and where the results lie.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from autodo.config import Config
from autodo.data.randomness import seeded
from autodo.experiment.methods import BASELINES, Score, run_autodo, run_baseline
from autodo.experiment.pictures import bars, gallery, sheet, terminal_gallery
from autodo.experiment.task import Task, digits_task
from autodo.models import SmallCNN
from autodo.report.page import write_report
from autodo.report.view import Baseline, save_baselines
from autodo.result import Result
from autodo.train.files import write_with

SHOWN = 10
"""Wrong labels that are drawn."""
PICTURE = 760
"""Width of what demo.png shows, in pixels."""


def digits_model(seed: int) -> SmallCNN:
    """The demo's network with the initial weights of ``seed``."""
    with seeded(seed):
        return SmallCNN(1, 10)


@contextmanager
def one_thread() -> Iterator[None]:
    """8x8 images keep one core busy; more threads would mostly wait for each other, and on a busy
    machine very long (20 times was measured)."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_methods(
    task: Task, config: Config, *, out: Path | None = None, progress: bool = False
) -> tuple[dict[str, Score], Result]:
    """Every method on one task, with one network and one budget."""

    def build() -> SmallCNN:
        return digits_model(config.seed)

    scores = {
        name: run_baseline(name, task, config, build, progress=progress) for name in BASELINES
    }
    scores["AutoDO"], result = run_autodo(task, config, build, out=out, progress=progress)
    return scores, result


def run(
    out: Path, seed: int = 0, noise: float = 0.4, progress: bool = True, epochs: int | None = None
) -> dict[str, Score]:
    """The demo; replaces an earlier run in ``out``."""
    console = Console()
    task = digits_task(noise=noise, seed=seed)
    config = Config(seed=seed, device="cpu")
    if epochs is not None:
        config = dataclasses.replace(config, epochs=epochs)
    wrong = int(task.wrong.sum())
    console.print(
        f"[bold]AutoDO on handwritten digits[/bold]: {len(task.train)} training images, "
        f"{wrong} of them ({wrong / len(task.train):.0%}) with a wrong label, digits 5 to 9 ten "
        f"times rarer; {len(task.trusted)} trusted images; {len(task.test)} test images.\n",
        highlight=False,
    )
    with one_thread():
        scores, result = run_methods(task, config, out=out, progress=progress)
    console.print(_table(scores))
    console.print(verdict(scores), highlight=False)
    _show_labels(console, task, scores, result, out)
    assert result.path is not None
    baselines = [Baseline(name=n, confusion=scores[n].confusion) for n in BASELINES]
    save_baselines(result.path, baselines)
    with one_thread():
        write_report(result.path, progress=progress)
    console.print("\n[bold]The results[/bold]", highlight=False)
    for name, about in {
        "report.html": "all of it as a page to look at in a browser",
        "points.parquet": "one row per training image: given and suggested label, score, weight",
        "model.safetensors": "the network",
        "metrics.jsonl": "every epoch's numbers (tensorboard/ shows them as curves)",
        "demo.png": "the table and the labels above as a picture",
        "config.toml": "how it was made",
    }.items():
        console.print(
            f"  {result.path / name}  [dim]{about}[/dim]", highlight=False, soft_wrap=True
        )
    console.print(
        f"To judge the suspected labels yourself: autodo review {result.path}",
        highlight=False,
        soft_wrap=True,
    )
    return scores


def _table(scores: dict[str, Score]) -> Table:
    table = Table(title="Test error on clean digits")
    table.add_column("method")
    table.add_column("all digits", justify="right")
    table.add_column("rare digits 5-9", justify="right")
    table.add_column("seconds", justify="right")
    best = min(scores, key=lambda name: scores[name].test_error)
    for name, score in scores.items():
        table.add_row(
            name,
            f"{score.test_error:.1%}",
            f"{score.rare_error:.1%}",
            f"{score.seconds:.1f}",
            style="bold" if name == best else None,
        )
    return table


def verdict(scores: dict[str, Score]) -> str:
    """What the table says, in words; it says so too when AutoDO is not the best."""
    ours = scores["AutoDO"]
    others = {name: score for name, score in scores.items() if name != "AutoDO"}
    best = min(others, key=lambda name: others[name].test_error)
    mine, theirs = ours.test_error, others[best].test_error
    if mine < theirs:
        first = f"AutoDO is best: {mine:.1%} against {theirs:.1%} ({best})."
    elif mine == theirs:
        first = f"AutoDO and {best} are level at {mine:.1%}."
    else:
        first = f"Here {best} is better: {theirs:.1%} against {mine:.1%}."
    if ours.auc is None or ours.corrected is None or ours.broken is None:
        return first
    return (
        f"{first}\nIts label score ranks wrong labels before right ones with AUC {ours.auc:.3f}; "
        f"with its suggestions {ours.corrected:.1%} of the training labels are right, and "
        f"{ours.broken:.1%} of the right ones are lost."
    )


def _show_labels(
    console: Console, task: Task, scores: dict[str, Score], result: Result, out: Path
) -> None:
    parts = [
        (
            "Test error on clean digits",
            bars({n: s.test_error for n, s in scores.items()}, width=PICTURE, strong="AutoDO"),
        )
    ]
    rows = result.label_issues.slice(0, SHOWN).to_pylist()
    if rows:
        parts.append(_found(console, task, result, rows))
    else:
        console.print("\nNo label looks wrong.")
    picture = sheet(parts)
    write_with(out / "demo.png", lambda file: picture.save(file, format="PNG"))


def _found(
    console: Console, task: Task, result: Result, rows: list[dict[str, Any]]
) -> tuple[str, Image.Image]:
    """Draws the labels in the terminal; returns them as a titled picture."""
    images = [task.train.images[row["index"]][0] for row in rows]
    captions = [f"{row['given_label']} -> {row['suggested_label']}" for row in rows]
    assert task.true_labels is not None  # the demo made the wrong labels itself
    truth = task.true_labels.tolist()
    true = sum(row["suggested_label"] == truth[row["index"]] for row in rows)
    console.print(
        f"\n[bold]The {len(rows)} surest of {result.label_issues.num_rows} wrong labels[/bold] "
        f"(given -> suggested; {true} of these {len(rows)} suggestions are the truth)\n",
        highlight=False,
    )
    console.print(terminal_gallery(console, images, captions))
    title = (
        f"The surest of {result.label_issues.num_rows} wrong labels it found, given -> suggested"
    )
    return title, gallery(images, captions, width=PICTURE)
