"""``autodo compare``: every method a user could choose, on their data, under one budget and one set
of seeds.

Each finished (method, seed) is written at once, so a stopped comparison goes on where it was, and
beside it the table of what there is so far (``verdict``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from rich.console import Console
from torch import nn

from autodo.config import Config
from autodo.data.checks import SharedImages, check_pair, open_dataset
from autodo.data.examples import Examples
from autodo.data.labels import as_labels
from autodo.data.randomness import borrowed
from autodo.errors import InputError, RunFolderError
from autodo.experiment.cleaning import run_cleanlab
from autodo.experiment.methods import (
    CLEANLAB,
    METHODS,
    OURS,
    PAPER,
    BuildModel,
    papers,
    run_autodo,
    run_baseline,
)
from autodo.experiment.score import Score, Scores
from autodo.experiment.task import Task
from autodo.experiment.verdict import markdown, table, verdict
from autodo.fitting import describe
from autodo.train.files import write_text


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
    """Every score there is so far; with a folder also as compare.json, beside the setting, and as
    the table compare.md."""

    def __init__(
        self,
        out: Path | None,
        setting: Mapping[str, Any],
        *,
        title: str = "comparison",
        overwrite: bool = False,
    ) -> None:
        self.setting, self.title = json.loads(json.dumps(setting)), title
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
        self._write_table()

    def _write_table(self) -> None:
        if self.file is not None and self.scores:
            write_text(self.file.with_suffix(".md"), markdown(self.scores, self.title))

    def __str__(self) -> str:
        console = Console(width=130, file=io.StringIO(), highlight=False)
        self.show(console)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        return str(text)

    def show(self, console: Console) -> None:
        """The table and the sentence."""
        console.print(table(self.scores, f"{self.title}: in %"))
        console.print(verdict(self.scores), soft_wrap=True)

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
        missing = [
            (seed, name)
            for seed in range(seeds)
            for name in methods
            if seed not in self.scores.get(name, {})
        ]
        made: tuple[int, Task] | None = None
        for k, (seed, name) in enumerate(missing):
            if made is None or made[0] != seed:
                made = seed, make_task(seed)
            task = made[1]
            tell(f"{k + 1} of {len(missing)}: {name}, seed {seed}{self._left(missing[k:])}")
            settings = dataclasses.replace(config, seed=seed)
            score = run_method(name, task, settings, build(task, seed), progress=progress)
            self.add(name, seed, score)
        if not missing:  # a folder of before there was a table, or of another title
            self._write_table()

    def _left(self, missing: Sequence[tuple[int, str]]) -> str:
        """How long these runs will take, as far as other seeds of every method tell."""
        if not all(self.scores.get(name) for _, name in missing):
            return ""
        seconds = sum(
            mean(run.seconds for run in self.scores[name].values()) for _, name in missing
        )
        return f", about {max(1, round(seconds / 60))} min left"


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
    if truth is not None and len(truth) != len(sets["train"]):
        raise InputError(
            f"there are {len(truth):,} true labels and train has {len(sets['train']):,} examples",
            "there must be one for each, in the order of train",
            "check that they belong to this set",
        )
    task = Task(**sets, true_labels=truth)
    about = describe({**sets})
    if truth is not None:
        about["true_labels"] = hashlib.blake2b(truth.numpy().tobytes(), digest_size=16).hexdigest()
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
    with borrowed(0):  # random transforms draw the same when a comparison is taken up
        images = torch.stack([opened[i][0] for i in range(len(opened))])
    return Examples.from_arrays(images, opened.labels, opened.class_names, opened.ids, name=name)
