"""``autodo compare``: every method a user could choose, on their data, under one budget and one set
of seeds.

Each finished (method, seed) is written at once, so a stopped comparison goes on where it was, and
beside it the table of what there is so far (``verdict``).
"""

from __future__ import annotations

import dataclasses
import io
import json
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from filelock import FileLock, Timeout
from rich.console import Console
from rich.markup import escape
from torch import nn

from autodo.config import Config
from autodo.data.checks import SharedImages, check_pair
from autodo.data.examples import Examples
from autodo.data.labels import as_labels
from autodo.data.map_images import MapImages
from autodo.data.randomness import borrowed
from autodo.data.wording import some
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
from autodo.experiment.own_task import check_truth, identified
from autodo.experiment.score import Score, Scores
from autodo.experiment.task import Task
from autodo.experiment.verdict import markdown, table, verdict
from autodo.fitting import checked_head, open_sets
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
        self.overwrite = overwrite
        if self.file is not None and self.file.is_file() and not overwrite:
            self._take_up(self.file)
        elif out is not None and out.exists() and not out.is_dir():
            raise RunFolderError(
                f"'{out}' is a file", "a comparison is a folder", "name another place with --out"
            )

    def _take_up(self, file: Path) -> None:
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            before, scores = dict(stored["setting"]), stored_scores(stored["runs"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(
                f"'{file}' is no comparison",
                f"it cannot be read: {error!r}",
                "choose another --out, or start anew with --overwrite",
            ) from error
        changed = sorted(
            k for k in before.keys() | self.setting.keys() if before.get(k) != self.setting.get(k)
        )
        if changed:
            k = changed[0]
            raise RunFolderError(
                f"'{file}' holds a comparison with another {k}"
                + _differences(before.get(k), self.setting.get(k)),
                "scores of different settings do not belong in one table",
                "choose another --out, or start anew with --overwrite",
            )
        self.scores = scores

    @contextmanager
    def _held(self) -> Iterator[None]:
        """The folder, which no other comparison writes to meanwhile."""
        if self.file is None:
            yield
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.file.with_name(".compare.lock"))
        try:
            lock.acquire(blocking=False)
        except Timeout as error:
            raise RunFolderError(
                f"another comparison is writing to '{self.file.parent}'",
                "each would lose what the other finds",
                "wait for it, or choose another --out",
            ) from error
        try:
            if self.overwrite:
                self.file.unlink(missing_ok=True)
                self.file.with_suffix(".md").unlink(missing_ok=True)
                self.overwrite = False
            elif self.file.is_file():
                self._take_up(self.file)  # what another has found since
            yield
        finally:
            lock.release()

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
        console.print(table(self.scores, escape(f"{self.title}: in %")))
        console.print(verdict(self.scores), soft_wrap=True, markup=False)

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
        made: dict[int, Task] = {}
        # What is wrong with one is known before hours of training; the first is made last and kept.
        for seed in sorted({seed for seed, _ in self._missing(methods, seeds)}, reverse=True):
            made = {seed: make_task(seed)}
        for seed, task in made.items():
            checked_head(build(task, seed)(), None, task.train, config, task.train.num_classes)
        with self._held():
            missing = self._missing(methods, seeds)
            for k, (seed, name) in enumerate(missing):
                if seed not in made:
                    made = {seed: make_task(seed)}
                tell(f"{k + 1} of {len(missing)}: {name}, seed {seed}{self._left(missing[k:])}")
                settings, task = dataclasses.replace(config, seed=seed), made[seed]
                score = run_method(name, task, settings, build(task, seed), progress=progress)
                self.add(name, seed, score)
            if not missing:  # a folder of before there was a table, or of another title
                self._write_table()

    def _missing(self, methods: Sequence[str], seeds: int) -> list[tuple[int, str]]:
        return [
            (seed, name)
            for seed in range(seeds)
            for name in methods
            if seed not in self.scores.get(name, {})
        ]

    def _left(self, missing: Sequence[tuple[int, str]]) -> str:
        """How long these runs will take, as far as other seeds of every method tell."""
        if not all(self.scores.get(name) for _, name in missing):
            return ""
        seconds = sum(
            mean(run.seconds for run in self.scores[name].values()) for _, name in missing
        )
        return f", about {max(1, round(seconds / 60))} min left"


def _differences(before: Any, now: Any) -> str:
    """What is another, of a setting in TOML its fields.

    >>> _differences("lr = 0.1\\nepochs = 3\\n", "lr = 0.2\\nepochs = 3\\n")
    ': lr was 0.1 and is now 0.2'
    """
    try:
        one, other = tomllib.loads(before), tomllib.loads(now)
    except (TypeError, AttributeError, tomllib.TOMLDecodeError):
        return f": {before!r}, and now it is {now!r}"
    fields = sorted(k for k in one.keys() | other.keys() if one.get(k) != other.get(k))
    told = (f"{k} was {one.get(k)!r} and is now {other.get(k)!r}" for k in fields)
    return f": {some(told)}"


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
    check_methods(methods, seeds)
    opened = open_sets(train, trusted, test, None, progress)
    sets = {name: _in_memory(data) for name, data in opened.items()}
    for warning in check_pair(sets["train"], sets["trusted"], test=sets["test"]):
        warnings.warn(warning, SharedImages, stacklevel=2)
    truth = None if true_labels is None else as_labels(true_labels, name="true_labels")
    if truth is not None:
        check_truth(truth, sets["train"], "true_labels")
    task = Task(**sets, true_labels=truth)
    about = identified(task)
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


def check_methods(methods: Sequence[str], seeds: int) -> None:
    """Refuse what cannot be run."""
    chosen = [methods] if isinstance(methods, str) else list(methods)
    unknown = [name for name in chosen if name not in METHODS]
    if unknown or not chosen or isinstance(methods, str):
        raise InputError(
            f"there is no method '{unknown[0]}'" if unknown else f"methods is {methods!r}",
            f"the methods are: {'; '.join(METHODS)}",
            "name some of them, in a list",
        )
    if seeds < 1:
        raise InputError(f"seeds is {seeds}", "each method is run at least once", "use 3")


def _in_memory(data: Examples | MapImages) -> Examples:
    """A dataset as Examples, read whole."""
    if isinstance(data, Examples):
        return data
    with borrowed(0):  # random transforms draw the same when a comparison is taken up
        images = torch.stack([data[i][0] for i in range(len(data))])
    return Examples.from_arrays(images, data.labels, data.class_names, data.ids, name=data.name)
