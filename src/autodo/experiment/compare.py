"""``autodo compare``: every method a user could choose, on their data, under one budget and one set
of seeds.

Each finished (method, seed) is written at once, so a stopped comparison goes on where it was.
The table has means, deviations and differences paired by seed; one sentence says what to use.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from autodo.config import Config
from autodo.data.checks import SharedImages, check_pair, open_dataset
from autodo.data.examples import Examples
from autodo.data.labels import as_labels
from autodo.errors import RunFolderError
from autodo.experiment.cleaning import run_cleanlab
from autodo.experiment.methods import (
    ALTERNATIVES,
    BuildModel,
    papers,
    run_autodo,
    run_baseline,
)
from autodo.experiment.score import Score
from autodo.experiment.task import Task
from autodo.train.files import write_text

OURS = "AutoDO"
PAPER = "AutoDO by the paper"
CLEANLAB = "cleanlab, then logit adjustment"
METHODS = (*ALTERNATIVES, CLEANLAB, PAPER, OURS)

Scores = dict[str, dict[int, Score]]
"""By method and seed."""


def run_method(
    name: str, task: Task, config: Config, build: BuildModel, *, progress: bool = False
) -> Score:
    """One method on one task. Only its end is compared, so that nothing is measured before."""
    config = dataclasses.replace(config, measure_every=config.epochs)
    if name == CLEANLAB:
        return run_cleanlab(task, config, build, progress=progress)
    if name not in (OURS, PAPER):
        return run_baseline(name, task, config, build, progress=progress)
    settings = config if name == OURS else papers(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SharedImages)  # told when the comparison began
        return run_autodo(task, settings, build, progress=progress, title=name)[0]


class Comparison:
    """Every score there is so far; with a folder also as compare.json, beside the setting."""

    def __init__(
        self, out: Path | None, setting: Mapping[str, Any], *, overwrite: bool = False
    ) -> None:
        self.setting = json.loads(json.dumps(setting))
        self.scores: Scores = {}
        self.file = None if out is None else out / "compare.json"
        if self.file is not None and self.file.is_file() and not overwrite:
            self._take_up(self.file)
        elif out is not None and out.exists() and not out.is_dir():
            raise RunFolderError(
                f"'{out}' is a file", "a comparison is a folder", "name another place with --out"
            )

    def _take_up(self, file: Path) -> None:
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            before, rows = stored["setting"], stored["runs"]
        except (ValueError, KeyError) as error:
            raise RunFolderError(
                f"'{file}' is no comparison", str(error), "choose another --out"
            ) from error
        changed = sorted(
            k for k in before.keys() | self.setting.keys() if before.get(k) != self.setting.get(k)
        )
        if changed:
            k = changed[0]
            raise RunFolderError(
                f"'{file}' holds a comparison with another {k}: "
                f"{before.get(k)!r}, and now it is {self.setting.get(k)!r}",
                "scores of different settings do not belong in one table",
                "choose another --out, or start anew with --overwrite",
            )
        self.scores = stored_scores(rows)

    def add(self, method: str, seed: int, score: Score) -> None:
        """Keep a score, on disk before anything else happens."""
        self.scores.setdefault(method, {})[seed] = score
        if self.file is None:
            return
        rows = [
            {"method": name, "seed": k, **dataclasses.asdict(run)}
            for name, runs in self.scores.items()
            for k, run in runs.items()
        ]
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.file, json.dumps({"setting": self.setting, "runs": rows}, indent=1) + "\n")

    def __str__(self) -> str:
        """The table and the sentence."""
        console = Console(width=130, file=io.StringIO())
        console.print(table(self.scores, "in %"))
        console.print(verdict(self.scores), soft_wrap=True)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        return str(text)

    def run(
        self,
        make_task: Callable[[int], Task],
        config: Config,
        build: Callable[[Task, int], BuildModel],
        *,
        methods: Sequence[str],
        seeds: int,
        progress: bool = False,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Whatever of ``methods`` x ``seeds`` is missing."""
        for seed in range(seeds):
            missing = [name for name in methods if seed not in self.scores.get(name, {})]
            if not missing:
                continue
            task = make_task(seed)
            for name in missing:
                tell(f"{name}, seed {seed}")
                settings = dataclasses.replace(config, seed=seed)
                score = run_method(name, task, settings, build(task, seed), progress=progress)
                self.add(name, seed, score)


def stored_scores(rows: Sequence[Mapping[str, Any]]) -> Scores:
    """What ``Comparison.add`` wrote as the runs of compare.json."""
    names = {field.name for field in dataclasses.fields(Score)}
    scores: Scores = {}
    for row in rows:
        values = {k: v for k, v in row.items() if k in names}
        scores.setdefault(row["method"], {})[row["seed"]] = Score(**values)
    return scores


def compare(
    build: BuildModel,
    train: Any,
    trusted: Any,
    test: Any,
    *,
    true_labels: Any = None,
    config: Config | None = None,
    seeds: int = 3,
    methods: Sequence[str] = METHODS,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> Comparison:
    """Run every method a user could choose on their data; ``print`` what comes back.

    Args:
        build: makes the network, anew for every run; its initial weights follow the run's seed.
        train, trusted, test: map-style datasets of (image, label) that fit into memory.
        true_labels: what the labels of train should be, if anybody knows.
        config: the budget and AutoDO's settings.
        seeds: runs of every method. methods: some of ``METHODS``.
        out: a folder in which every finished run is kept, and taken up again.
    """
    config = Config() if config is None else config
    sets = {
        name: in_memory(data, name)
        for name, data in (("train", train), ("trusted", trusted), ("test", test))
    }
    for warning in check_pair(sets["train"], sets["trusted"], test=sets["test"]):
        warnings.warn(warning, SharedImages, stacklevel=2)
    truth = None if true_labels is None else as_labels(true_labels, name="true_labels")
    task = Task(**sets, true_labels=truth)
    about = {name: len(data) for name, data in sets.items()}
    settings = dataclasses.replace(config, seed=0).to_toml()
    comparison = Comparison(
        None if out is None else Path(out), {**about, "config": settings}, overwrite=overwrite
    )

    def seeded(_: Task, seed: int) -> BuildModel:
        def make() -> nn.Module:
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                return build()

        return make

    comparison.run(lambda _: task, config, seeded, methods=methods, seeds=seeds, progress=progress)
    return comparison


def in_memory(data: Any, name: str) -> Examples:
    """A dataset as Examples, read whole."""
    opened = open_dataset(data, name=name)
    if isinstance(opened, Examples):
        return opened
    images = torch.stack([opened[i][0] for i in range(len(opened))])
    return Examples.from_arrays(images, opened.labels, opened.class_names, opened.ids, name=name)


def table(scores: Scores, title: str) -> Table:
    """Means and deviations in percent; differences to AutoDO paired by seed."""
    out = Table(title=title)
    columns = ("method", "test error", "rare half", "AutoDO minus it", "AUC", "AP", "labels right")
    for k, column in enumerate((*columns, "seconds")):
        out.add_column(column, justify="left" if k == 0 else "right")
    best = min(scores, key=lambda name: _mean(scores[name], "test_error"))
    for name, runs in scores.items():
        out.add_row(
            name,
            _spread([run.test_error for run in runs.values()]),
            _spread([run.rare_error for run in runs.values()]),
            "" if name == OURS else _spread(differences(scores, name)),
            _decimal(runs, "auc"),
            _decimal(runs, "average_precision"),
            _percent(runs, "corrected"),
            f"{_mean(runs, 'seconds'):.0f}",
            style="bold" if name == best else None,
        )
    return out


def differences(scores: Scores, name: str) -> list[float]:
    """Test error of AutoDO minus that of another method, seed by seed."""
    ours, theirs = scores.get(OURS, {}), scores[name]
    return [ours[k].test_error - theirs[k].test_error for k in sorted(ours.keys() & theirs.keys())]


def verdict(scores: Scores) -> str:
    """Which method to use, in one sentence that follows from the table.

    A difference counts when it is larger than its standard error over the seeds.
    """
    ranked = sorted(scores, key=lambda name: _mean(scores[name], "test_error"))
    best = ranked[0]
    error = f"{_mean(scores[best], 'test_error'):.1%}"
    if len(ranked) == 1:
        return f"Only {best} was run: {error} test error."
    level = [name for name in ranked[1:] if not _clearly(scores, best, name)]
    seeds = min(len(runs) for runs in scores.values())
    if seeds < 2:
        return (
            f"{best} has the lowest test error ({error}, against "
            f"{_mean(scores[ranked[1]], 'test_error'):.1%} of {ranked[1]}), but one seed cannot "
            "say how sure that is: run more with --seeds."
        )
    if not level:
        return (
            f"Use {best}: {error} test error, {_mean(scores[ranked[1]], 'test_error'):.1%} with "
            f"the next best ({ranked[1]}), a difference larger than its standard error over "
            f"{seeds} seeds."
        )
    cheapest = min([best, *level], key=lambda name: _mean(scores[name], "seconds"))
    return (
        f"{best} has the lowest test error ({error}), but within the standard error over {seeds} "
        f"seeds {_listed(level)} {'is' if len(level) == 1 else 'are'} as good; the cheapest of "
        f"these is {cheapest}."
    )


def _clearly(scores: Scores, best: str, other: str) -> bool:
    """Whether ``best`` is better than ``other`` by more than the standard error, paired."""
    common = sorted(scores[best].keys() & scores[other].keys())
    gaps = [scores[other][k].test_error - scores[best][k].test_error for k in common]
    if len(gaps) < 2:
        return False
    return mean(gaps) > stdev(gaps) / math.sqrt(len(gaps))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{'; '.join(names[:-1])} and {names[-1]}"


def _mean(runs: Mapping[int, Score], field: str) -> float:
    return mean(getattr(run, field) for run in runs.values())


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    deviation = f" ± {100 * stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * mean(values):.2f}{deviation}"


def _decimal(runs: Mapping[int, Score], field: str) -> str:
    found = [value for run in runs.values() if (value := getattr(run, field)) is not None]
    return f"{mean(found):.4f}" if found else "-"


def _percent(runs: Mapping[int, Score], field: str) -> str:
    found = [value for run in runs.values() if (value := getattr(run, field)) is not None]
    return _spread(found) if found else "-"
