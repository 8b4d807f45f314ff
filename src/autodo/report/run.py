"""A finished run, opened to be looked at: its settings, numbers, points and view."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from autodo.config import Config
from autodo.errors import RunFolderError
from autodo.report.view import Baseline, ViewFolder, load_baselines, read_table
from autodo.train.files import unreadable
from autodo.train.run_folder import ANEW, Metrics, RunFolder


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """What the folder of a run says."""

    path: Path
    config: Config
    data: dict[str, Any]
    """Sizes, classes and fingerprint of the sets."""
    versions: dict[str, str]
    metrics: list[Metrics]
    points: pa.Table
    view: ViewFolder

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """The run in the folder ``path``."""
        folder = RunFolder(path)
        if not folder.config.is_file():
            raise RunFolderError(
                f"'{path}' is not a run",
                "it has no config.toml" if folder.path.is_dir() else "there is no such folder",
                "give the folder that autodo fit or autodo demo wrote, such as runs/demo",
            )
        if not folder.points.is_file():
            raise RunFolderError(
                f"the run in '{path}' is not finished",
                "points.parquet is written when its last epoch is done",
                "go on with it: the autodo fit that began it, with --resume",
            )
        about = folder.read_config()
        if "classes" not in about["data"]:
            raise unreadable(folder.config, "it does not name the classes", ANEW)
        metrics = folder.read_metrics()
        if not metrics:
            raise unreadable(folder.metrics, "it is empty")
        return cls(
            path=folder.path,
            config=Config.from_dict(about["config"]),
            data=about["data"],
            versions=about.get("versions", {}),
            metrics=metrics,
            points=folder.read_points(),
            view=ViewFolder(path),
        )

    @property
    def classes(self) -> list[str]:
        """Names of the C classes."""
        return [str(name) for name in self.data["classes"]]

    @cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """The number columns of points, each (N,)."""
        names = (name for name in self.points.column_names if name != "id")
        return {name: np.asarray(self.points[name]) for name in names}

    @cached_property
    def predictions(self) -> dict[str, dict[str, np.ndarray]]:
        """label, predicted and confidence of every set that was looked at."""
        if not self.view.exists:
            return {}
        table = read_table(self.view.predictions)
        sets = np.asarray(table["set"])
        columns = {c: np.asarray(table[c]) for c in ("label", "predicted", "confidence")}
        return {
            name: {c: values[sets == name] for c, values in columns.items()}
            for name in dict.fromkeys(sets.tolist())
        }

    @cached_property
    def baselines(self) -> list[Baseline]:
        """Other methods on the same test set, the best first."""
        return sorted(load_baselines(self.path), key=lambda baseline: baseline.error)

    @property
    def judged(self) -> str | None:
        """The set that errors are shown of: test if there is one, else trusted."""
        return next((name for name in ("test", "trusted") if name in self.predictions), None)

    @property
    def seconds(self) -> float:
        """Of training, all epochs."""
        return float(sum(m.get("seconds", 0.0) for m in self.metrics))
