"""A run is a folder: config.toml, metrics.jsonl, checkpoints, points.parquet, model.safetensors.

The folder comes into being only after every check of the input has passed, and every file in it
is written whole or not at all, so a kill at any moment leaves a folder that can be resumed.
"""

from __future__ import annotations

import io
import json
import pickle
import platform
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

import autodo
from autodo.config import Config
from autodo.errors import RunFolderError
from autodo.train.files import atomic, readable, unreadable, write_text

Metrics = dict[str, Any]
"""What is known of one epoch; one line of metrics.jsonl."""

ANEW = "copy the run again, or start anew with --overwrite"
"""The cure of a damaged file without which a run cannot go on."""


class RunFolder:
    """The files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.toml"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoint = self.path / "checkpoints" / "last.pt"
        self.points = self.path / "points.parquet"
        self.model = self.path / "model.safetensors"
        self.tensorboard = self.path / "tensorboard"

    @classmethod
    def check(
        cls,
        path: str | Path,
        config: Config,
        data: dict[str, Any],
        *,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        """Raise unless ``open`` would succeed; touches nothing."""
        folder = cls(path)
        if folder.path.exists() and not folder.path.is_dir():
            raise RunFolderError(
                f"{folder.path} is a file", "a run is a folder", "name another place with --out"
            )
        taken = folder._taken()
        if resume:
            if taken:
                folder._check_same(config, data)
        elif taken and not overwrite:
            raise RunFolderError(
                f"{folder.path} already exists",
                "a run of that name was made before",
                "continue it with --resume, replace it with --overwrite, or choose another --out",
            )
        elif taken and not folder.config.is_file():
            raise RunFolderError(
                f"{folder.path} is not a run folder",
                "it has files but no config.toml, so --overwrite would delete something else",
                "choose another --out, or empty the folder yourself",
            )

    @classmethod
    def open(
        cls,
        path: str | Path,
        config: Config,
        data: dict[str, Any],
        *,
        resume: bool = False,
        overwrite: bool = False,
    ) -> RunFolder:
        """Make the folder, or take it up again.

        ``data`` describes the datasets (sizes, classes, fingerprint); resuming on other data
        or with another configuration is refused.
        """
        cls.check(path, config, data, resume=resume, overwrite=overwrite)
        folder = cls(path)
        if overwrite and not resume:
            folder._clear()
        folder.path.mkdir(parents=True, exist_ok=True)
        folder._sweep()
        if not folder.config.is_file():
            header = {
                "autodo": autodo.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            }
            text = tomli_w.dumps(
                {"config": tomllib.loads(config.to_toml()), "data": data, "versions": header}
            )
            # Before all else: whatever has a config.toml can be resumed or overwritten.
            write_text(folder.config, text)
        folder.checkpoint.parent.mkdir(exist_ok=True)
        return folder

    def _taken(self) -> bool:
        """Whether something is there besides what a kill at the very start leaves behind."""
        return self.path.is_dir() and any(
            not _is_leftover(entry, self.config) for entry in self.path.iterdir()
        )

    def _clear(self) -> None:
        """Delete the run, its config.toml last, so that a kill leaves what can be overwritten."""
        if self.path.is_dir():
            for entry in self.path.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                elif entry != self.config:
                    entry.unlink()
            self.config.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove the unfinished files of a process that was killed while it wrote them."""
        for file in (self.config, self.metrics, self.checkpoint, self.points, self.model):
            if file.parent.is_dir():
                for entry in file.parent.iterdir():
                    if _is_leftover(entry, file):
                        entry.unlink()

    def _check_same(self, config: Config, data: dict[str, Any]) -> None:
        if not self.config.is_file():
            raise RunFolderError(
                f"{self.path} cannot be resumed",
                "it has no config.toml, so it is not a run folder",
                "check the path of --out",
            )
        stored = self.read_config()
        wanted = {"config": tomllib.loads(config.to_toml()), "data": data}
        for part in ("config", "data"):
            before, now = stored.get(part, {}), wanted[part]
            changed = sorted(k for k in before.keys() | now.keys() if before.get(k) != now.get(k))
            if changed:
                k = changed[0]
                what = "setting" if part == "config" else "property of the data"
                raise RunFolderError(
                    f"{self.path} was started with another {what}: "
                    f"{k} was {before.get(k, 'unset')!r} and is now {now.get(k, 'unset')!r}",
                    "a resumed run must end as if it had never stopped",
                    "resume with the settings in its config.toml, or start anew with another --out",
                )

    def read_config(self) -> dict[str, Any]:
        """config.toml: the tables config, data and versions."""
        with readable(self.config, ANEW):
            stored = tomllib.loads(self.config.read_text(encoding="utf-8"))
        for table in ("config", "data"):
            if not isinstance(stored.get(table), dict):  # cut off between two lines
                raise unreadable(self.config, f"it has no table [{table}]", ANEW)
        return stored

    def read_metrics(self) -> list[Metrics]:
        """metrics.jsonl, one dictionary per epoch."""
        with readable(self.metrics):
            return [dict(json.loads(line)) for line in self.metrics.read_text().splitlines()]

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        # In memory first: a full disk is then an OSError, not an assertion of torch's zip writer.
        buffer = io.BytesIO()
        torch.save(state, buffer)
        with atomic(self.checkpoint) as file:
            file.write(buffer.getbuffer())

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The last whole checkpoint, or None before the first."""
        if not self.checkpoint.is_file():
            return None
        with readable(self.checkpoint, ANEW):
            try:
                state = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
            except pickle.UnpicklingError as error:
                # Not in torch's words: they advise to load it all the same, and so to execute it.
                raise unreadable(
                    self.checkpoint,
                    "it is damaged, or has something in it that loading would execute",
                    ANEW,
                ) from error
            return dict(state)

    def write_metrics(self, history: list[Metrics]) -> None:
        write_text(self.metrics, "".join(json.dumps(m) + "\n" for m in history))

    def append_metrics(self, metrics: Metrics) -> None:
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(metrics) + "\n")

    def save_points(self, points: pa.Table) -> None:
        with atomic(self.points) as file:
            pq.write_table(points, file)

    def read_points(self) -> pa.Table:
        """points.parquet, one row per training example."""
        with readable(self.points):
            return pq.read_table(self.points)

    def save_model(self, state: dict[str, Tensor]) -> None:
        # Tied weights share memory, which safetensors refuses; a copy of each name restores both.
        tensors = {k: v.detach().cpu().clone().contiguous() for k, v in state.items()}
        with atomic(self.model) as file:
            file.write(save_tensors(tensors))


def _is_leftover(entry: Path, file: Path) -> bool:
    """Whether ``entry`` is a temporary file that ``atomic(file)`` did not come to rename."""
    return entry.name.startswith(f".{file.name}.")
