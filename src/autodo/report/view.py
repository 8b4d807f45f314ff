"""The folder ``view`` of a run: pictures, predictions and features kept to be looked at.

No file of it can execute anything when it is read: JSON, Parquet, safetensors and WebP. Each is
whole or absent, and about.json comes last, so that a view without it is one that was cut short.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from autodo.train.files import atomic, readable, write_text

VERSION = 1
SETS = ("train", "trusted", "test")


class ViewFolder:
    """The files of the view of the run in ``run``."""

    def __init__(self, run: str | Path) -> None:
        self.path = Path(run) / "view"
        self.about = self.path / "about.json"
        """Version, shape of the images, where train came from."""
        self.thumbnails = self.path / "thumbnails.parquet"
        """index (of train), image: small pictures of the examples that stand out."""
        self.strips = self.path / "strips.parquet"
        """kind, label, index, view, image: examples (view 0) and how they are augmented."""
        self.predictions = self.path / "predictions.parquet"
        """set, index, label, predicted, confidence: of every example."""
        self.features = self.path / "features.safetensors"
        """{set}_index (n,), {set} (n, K) float16: principal components of the head's input."""
        self.map = self.path / "map.parquet"
        """set, index: the examples of the map, in the order of the tiles of its picture."""
        self.sprite = self.path / "map.webp"
        """The examples of the map as tiles, row by row."""
        self.projection = self.path / "projection.safetensors"
        """xy (n, 2): where t-SNE puts the examples of the map; made by the first report."""
        self.baselines = self.path / "baselines.json"
        """What other methods did on the same data, where somebody measured it."""

    @property
    def exists(self) -> bool:
        return self.about.is_file()

    def begin(self) -> None:
        """Make the folder, or take back what an earlier view said; baselines stay."""
        self.path.mkdir(exist_ok=True)
        self.about.unlink(missing_ok=True)
        self.projection.unlink(missing_ok=True)
        for entry in self.path.iterdir():
            if entry.name.startswith("."):  # of a process that was killed while it wrote
                entry.unlink()

    def finish(self, about: dict[str, Any]) -> None:
        write_text(self.about, json.dumps({"version": VERSION, **about}, indent=1))

    def read_about(self) -> dict[str, Any]:
        with readable(self.about):
            return dict(json.loads(self.about.read_text(encoding="utf-8")))


def write_table(path: Path, columns: dict[str, Any]) -> None:
    """Columns as a Parquet file."""
    with atomic(path) as file:
        pq.write_table(pa.table(columns), file)


def read_table(path: Path) -> pa.Table:
    """What ``write_table`` wrote."""
    with readable(path):
        return pq.read_table(path)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What another method did on the test set of a run."""

    name: str
    confusion: tuple[tuple[int, ...], ...]
    """(C, C) counts: row the true class, column the predicted one."""

    @property
    def error(self) -> float:
        """Share of the test set that it got wrong.

        >>> Baseline(name="plain", confusion=((3, 1), (0, 4))).error
        0.125
        """
        total = sum(map(sum, self.confusion))
        right = sum(row[k] for k, row in enumerate(self.confusion))
        return (total - right) / max(total, 1)


def save_baselines(run: str | Path, baselines: Iterable[Baseline]) -> None:
    """Let the report of ``run`` show these methods beside it."""
    folder = ViewFolder(run)
    folder.path.mkdir(exist_ok=True)
    rows = [{"name": b.name, "confusion": b.confusion} for b in baselines]
    write_text(folder.baselines, json.dumps(rows))


def load_baselines(run: str | Path) -> list[Baseline]:
    """Those that ``save_baselines`` wrote; none where it did not."""
    file = ViewFolder(run).baselines
    if not file.is_file():
        return []
    with readable(file, "copy the run again, or remove that file: it holds other methods only"):
        rows = json.loads(file.read_text(encoding="utf-8"))
        return [Baseline(name=str(r["name"]), confusion=_counts(r["confusion"])) for r in rows]


def _counts(rows: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(n) for n in row) for row in rows)
