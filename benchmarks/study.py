"""Every method on every cell of the study, as far as the time allows; the same command goes on.

    python benchmarks/study.py --data-dir DATA --minutes 9 --processes 3     # SVHN, CIFAR-10: a GPU
    python benchmarks/study.py --datasets digits --trusted 50 200 --network small_cnn --epochs 60 \
        --batch-size 128 --lr 0.02

A cell is a dataset, a distortion and a number of trusted points, and is one comparison of
``autodo compare`` under OUT. Seeds go round outermost, so that what is there so far covers all
cells. With --labels FILE the labels that people gave to CIFAR-10 (CIFAR-10N) are cells too;
--only takes the cells whose folder ends in one of these words, in that order. A small
network does not fill a large GPU: several processes share it. --set changes a field of the
configuration, for a table of its own under another --out; such tables are for choosing, and --test
N measures them on points that are held out of the training set. --points N --size 16 makes a study
for a laptop: so many points of each training set, images made smaller by averaging. --known FILE
names runs that were kept before and are not made again; ``study_tables.py --add`` keeps new ones.
With --minutes no run is begun that is expected to take longer than what is left, by what the
method took with another seed or in a cell of that size. Cells that differ in nothing but the labels
of train share their runs of "trusted alone", which never sees those.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import multiprocessing
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from autodo.commands.given import make_network
from autodo.config import Config
from autodo.data import Examples, stratified_split
from autodo.data.sources import load
from autodo.experiment.compare import Comparison, run_method, stored_scores
from autodo.experiment.methods import METHODS, OURS
from autodo.experiment.own_task import task_maker
from autodo.experiment.score import Score, Scores
from autodo.experiment.task import Task
from autodo.models.registry import find

DISTORTIONS = ("1-0.0", "1-0.4", "10-0.1", "100-0.0", "100-0.1", "lt100-0.2")
PEOPLE = ("worse_label", "aggre_label")
ALONE = "trusted alone"


@dataclasses.dataclass(frozen=True)
class Cell:
    dataset: str
    distortion: str
    trusted: int

    @property
    def folder(self) -> str:
        kind = self.distortion.rpartition("#")[2]  # of labels in a file their key
        return f"{self.dataset}-{kind}-{self.trusted}"

    @property
    def imbalance(self) -> str:
        return self.distortion.partition("-")[0]

    def shares(self, method: str, other: Cell) -> bool:
        """Whether a method's run with a seed is the same in another cell: without the labels of
        train it has the same trusted points and takes as many steps."""
        alike = (self.dataset, self.trusted, self.imbalance)
        return self == other or (
            method == ALONE and alike == (other.dataset, other.trusted, other.imbalance)
        )


def cells(args: argparse.Namespace) -> list[Cell]:
    kinds = [(d, k) for d in args.datasets for k in args.distortions]
    if args.labels is not None and "cifar10" in args.datasets:
        kinds += [("cifar10", f"1-file:{args.labels}#{key}") for key in PEOPLE]
    found = [Cell(d, k, trusted) for trusted in args.trusted for d, k in kinds]
    if args.only:
        found = [cell for word in args.only for cell in found if cell.folder.endswith(word)]
    return found


class Runner:
    """One run after the other in one process, which reads each set once."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.builder = args, find(args.network)
        changes = tomllib.loads("\n".join(args.set))
        self.config = Config.from_dict(
            {
                "epochs": args.epochs,
                "warmup_epochs": min(5, max(1, args.epochs // 10)),
                "batch_size": args.batch_size,
                "lr": args.lr,
                "device": args.device,
                **changes,
            }
        )
        self.sets: dict[tuple[str, str], Examples] = {}
        self.makers: dict[Cell, tuple[Callable[[int], Task], dict[str, object]]] = {}

    def task_maker(self, cell: Cell) -> tuple[Callable[[int], Task], dict[str, object]]:
        if cell not in self.makers:
            test = self.args.test or f"{cell.dataset}:test"
            source = f"{cell.dataset}:train", str(cell.trusted), test
            self.makers[cell] = task_maker(self._load, *source, distortion=cell.distortion)
        return self.makers[cell]

    def _load(self, source: str, name: str) -> Examples:
        dataset, part = source.split(":")
        if (dataset, part) not in self.sets:
            whole = load(dataset, part, data_dir=self.args.data_dir, name=name)
            self.sets[dataset, part] = smaller(whole, self.args.points, self.args.size)
        return self.sets[dataset, part]

    def run(self, cell: Cell, name: str, seed: int) -> Score:
        task = self.task_maker(cell)[0](seed)
        config = dataclasses.replace(self.config, seed=seed)
        network = functools.partial(make_network, self.builder, task.train, seed)
        return run_method(name, task, config, network)


def part(whole: Examples, points: int) -> Tensor:
    """The places of so many points, the same ones each time."""
    return stratified_split(whole.labels, points, seed=0)[1]


def smaller(whole: Examples, points: int | None, size: int | None) -> Examples:
    """So many points of a set, if it has more, with images of a smaller side."""
    if points is not None and points < len(whole):
        whole = whole.subset(part(whole, points))
    if size is None:
        return whole
    small = adaptive_avg_pool2d(whole.images.float(), size).round().to(whole.images.dtype)
    return dataclasses.replace(whole, images=small)


def labels_of_part(args: argparse.Namespace) -> Path:
    """A file under --out of the labels that people gave to the points of CIFAR-10 that are kept."""
    whole = load("cifar10", "train", data_dir=args.data_dir)
    kept = part(whole, args.points).numpy()
    file = args.out / f"labels-of-{args.points}.npz"
    args.out.mkdir(parents=True, exist_ok=True)
    with np.load(args.labels) as held:
        np.savez(file, **{key: held[key][kept] for key in PEOPLE})
    return file


def known_runs(file: Path) -> dict[str, Scores]:
    """What a file of the study keeps: of each cell's folder its runs."""
    stored = json.loads(file.read_text())
    return {folder: stored_scores(comparison["runs"]) for folder, comparison in stored.items()}


_runner: Runner | None = None


def _start(args: argparse.Namespace) -> None:
    global _runner
    _runner = Runner(args)


def _run(cell: Cell, name: str, seed: int) -> Score:
    assert _runner is not None
    return _runner.run(cell, name, seed)


class Study:
    """The cells with their comparisons."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.known = {} if args.known is None else known_runs(args.known)
        runner = Runner(args)
        self.comparisons: dict[Cell, Comparison] = {}
        for cell in cells(args):
            if all(set(range(args.seeds)) <= self._known(cell, m).keys() for m in args.methods):
                continue
            _, about = runner.task_maker(cell)
            setting = {**about, "model": args.network, "config": runner.config.to_toml()}
            self.comparisons[cell] = Comparison(args.out / cell.folder, setting)
        for cell in cells(args):
            for seed, score in self._known(cell, ALONE).items():
                self._share(cell, ALONE, seed, score)

    def missing(self) -> Iterator[tuple[Cell, str, int]]:
        for seed in range(self.args.seeds):
            todo = [
                (cell, name)
                for cell in self.comparisons
                for name in self.args.methods
                if seed not in self._runs(cell, name)
            ]
            for k, (cell, name) in enumerate(todo):
                if not any(m == name and cell.shares(name, other) for other, m in todo[:k]):
                    yield cell, name, seed

    def _share(self, cell: Cell, name: str, seed: int, score: Score) -> None:
        """Keep a run in all cells in which it is the same and missing."""
        for other, comparison in self.comparisons.items():
            if cell.shares(name, other) and seed not in self._runs(other, name):
                comparison.add(name, seed, score)

    def _known(self, cell: Cell, name: str) -> dict[int, Score]:
        return self.known.get(cell.folder, {}).get(name, {})

    def expected(self, cell: Cell, name: str) -> float:
        """Seconds that the method took in the cell with another seed, or else in the smallest of
        the cells that are no smaller; 0 where nothing tells."""
        if runs := self._runs(cell, name):
            return max(run.seconds for run in runs.values())
        took = [
            (self._points(other), run.seconds)
            for other in self.comparisons
            for run in self._runs(other, name).values()
        ]
        larger = [one for one in took if one[0] >= self._points(cell)]
        return min(larger)[1] if larger else max((seconds for _, seconds in took), default=0.0)

    def _runs(self, cell: Cell, name: str) -> dict[int, Score]:
        return self._known(cell, name) | self.comparisons[cell].scores.get(name, {})

    def _points(self, cell: Cell) -> int:
        return int(self.comparisons[cell].setting["train"])

    def run(self, until: float) -> int:
        """Run what is missing while the time lasts; returns how many are still missing."""
        todo = list(self.missing())
        running: dict[Future[Score], tuple[Cell, str, int]] = {}
        with ProcessPoolExecutor(
            self.args.processes,
            mp_context=multiprocessing.get_context("spawn"),  # CUDA does not survive a fork
            initializer=_start,
            initargs=(self.args,),
        ) as pool:
            while True:
                while len(running) < self.args.processes:
                    left = until - time.monotonic()
                    fits = (run for run in todo if self.expected(*run[:2]) < left)
                    run = next(fits, None)
                    if run is None:
                        break
                    todo.remove(run)
                    running[pool.submit(_run, *run)] = run
                if not running:
                    break
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    self._keep(*running.pop(future), future)
        return sum(1 for _ in self.missing())

    def _keep(self, cell: Cell, name: str, seed: int, future: Future[Score]) -> None:
        try:
            score = future.result()
        except Exception as error:  # the others go on; the same command tries it again
            print(f"{cell.folder}  seed {seed}  {name}: FAILED, {error!r}", flush=True)
            return
        self._share(cell, name, seed, score)
        auc = "" if score.auc is None else f"  AUC {score.auc:.3f}"
        print(
            f"{cell.folder}  seed {seed}  {name}: {100 * score.test_error:.2f}%{auc}"
            f"  {score.seconds:.0f} s",
            flush=True,
        )


def summary(study: Study) -> Table:
    """Test errors of all cells; the best of a cell is bold."""
    table = Table(title="test error in % (AUC of wrong labels)")
    table.add_column("cell")
    for name in study.args.methods:
        table.add_column(name, justify="right")
    for cell, comparison in study.comparisons.items():
        scores = comparison.scores
        if not scores:
            continue
        best = min(scores, key=lambda n: mean(s.test_error for s in scores[n].values()))
        row = [
            _cell(list(scores[name].values()), name == best) if name in scores else "-"
            for name in study.args.methods
        ]
        table.add_row(cell.folder, *row)
    return table


def _cell(runs: list[Score], best: bool) -> str:
    text = "".join(in_short(runs))
    return f"[bold]{text}[/bold]" if best else text


def in_short(runs: list[Score]) -> tuple[str, str]:
    """The error of some runs in percent, and the AUC of wrong labels where they have one."""
    errors = [100 * run.test_error for run in runs]
    error = f"{mean(errors):.2f}" + (f" ± {stdev(errors):.2f}" if len(errors) > 1 else "")
    found = [run.auc for run in runs if run.auc is not None]
    return error, f" ({mean(found):.3f})" if found else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--datasets", nargs="+", default=["svhn", "cifar10"])
    parser.add_argument("--distortions", nargs="+", default=list(DISTORTIONS))
    parser.add_argument("--labels", type=Path, help="CIFAR-10N's labels, .npz")
    parser.add_argument("--trusted", type=int, nargs="+", default=[1000, 100, 10000])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--network", default="wrn-16-4")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--test", metavar="N", help="measure on N training points that are held out"
    )
    parser.add_argument("--points", type=int, help="of a training set")
    parser.add_argument("--size", type=int, help="side that images are made smaller to")
    parser.add_argument("--known", type=Path, metavar="FILE", help="runs that are not made again")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD")
    parser.add_argument("--set", nargs="+", default=[], metavar="FIELD=VALUE", help="as in TOML")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path, default=Path("runs/study"))
    args = parser.parse_args()
    if args.labels is not None and args.points is not None:
        args.labels = labels_of_part(args)
    study = Study(args)
    left = study.run(time.monotonic() + 60 * args.minutes)
    Console(width=200).print(summary(study))
    print(f"{left} runs are missing" if left else f"complete; {OURS} is the last column")


if __name__ == "__main__":
    main()
