"""What was measured: result.json of every finished seed, and means over seeds.

result.json is written last of all, so a seed that has one is finished. Errors and
accuracies are fractions here; the tables show percent. Knows nothing of torch.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autodo.experiment.paper.cells import Cell
from autodo.train.files import write_text

RESULT = "result.json"


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """The numbers of one run."""

    seed: int
    epochs: int
    test_error: float
    """Of the last epoch: the result."""
    best_test_error: float
    """Of the epoch with the least test error, which only the test set can tell: as the
    published code reports, and too good to be true."""
    best_epoch: int
    class_accuracy: tuple[float, ...]
    """On the test set, of the last epoch."""
    rare_accuracy: float
    """Mean accuracy of the classes C/2 .. C-1, those that the imbalance makes rare."""
    interclass_deviation: float
    """Standard deviation of the accuracy over the classes."""
    seconds: float
    note: str = ""

    @classmethod
    def load(cls, folder: Path) -> SeedResult | None:
        """The result in a run folder, or None if the run is not finished."""
        file = folder / RESULT
        if not file.is_file():
            return None
        values = json.loads(file.read_text(encoding="utf-8"))
        values["class_accuracy"] = tuple(values["class_accuracy"])
        return cls(**values)

    def save(self, folder: Path) -> None:
        write_text(folder / RESULT, json.dumps(dataclasses.asdict(self), indent=1) + "\n")


@dataclass(frozen=True)
class Spread:
    """Mean and sample deviation (n - 1) over seeds, as fractions."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Over the seeds; one alone has no deviation.

        >>> str(Spread.of([0.05, 0.07])), str(Spread.of([0.05]))
        ('6.00±1.41', '5.00')
        """
        return cls(statistics.fmean(values), statistics.stdev(values) if values[1:] else None)

    def __str__(self) -> str:
        mean = f"{100 * self.mean:.2f}"
        return mean if self.deviation is None else f"{mean}±{100 * self.deviation:.2f}"


def seed_folder(out: Path, cell: Cell, seed: int) -> Path:
    return out / cell.folder / f"seed-{seed}"


def collect(out: Path, cell: Cell) -> list[SeedResult]:
    """The finished seeds of a cell, in order."""
    folders = (out / cell.folder).glob("seed-*")
    results = (SeedResult.load(folder) for folder in folders)
    return sorted((r for r in results if r is not None), key=lambda r: r.seed)
