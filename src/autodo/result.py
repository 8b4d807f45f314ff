"""What a run gives back: the model, the points table, and how it went."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from torch import nn

from autodo.config import Config
from autodo.train.run_folder import Metrics, RunFolder


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """The outcome of ``autodo.fit``."""

    model: nn.Module
    """The trained network, the same object that was given."""
    points: pa.Table
    """One row per training example: given_label, suggested_label, label_score, weight, ..."""
    history: list[Metrics]
    """One dictionary per epoch, as in metrics.jsonl."""
    config: Config
    class_names: tuple[str, ...]
    data: dict[str, Any] = field(default_factory=dict)
    """Sizes, classes and fingerprint of the data."""
    path: Path | None = None
    """The run folder, if one was written."""

    @property
    def label_issues(self) -> pa.Table:
        """The rows of ``points`` whose label is probably wrong, the surest first."""
        issues = self.points.filter(pc.field("is_label_issue"))
        return issues.sort_by("label_score")

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the run as a folder: config.toml, metrics.jsonl, points.parquet, model.safetensors.

        Refuses a folder that already has something in it, unless told to overwrite a run.
        """
        folder = RunFolder.open(path, self.config, self.data, overwrite=overwrite)
        folder.write_metrics(self.history)
        self.write(folder)
        return folder.path

    def write(self, folder: RunFolder) -> None:
        """The points and the model, into an open folder."""
        folder.save_points(self.points)
        folder.save_model(self.model.state_dict())
