"""Small real runs for the tests of the report and the export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

import autodo
from autodo.data import Examples, load_digits
from autodo.report.view import Baseline, save_baselines

HOSTILE = "</script><img src=x onerror=window.hacked=1>"
NAMES = (HOSTILE, *"123456789")


def network(channels: int = 1, size: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(channels * size * size, 24), nn.ReLU(), nn.Linear(24, 10)
    )


def messy_digits() -> tuple[Examples, Examples, Examples]:
    """200 digits, the first 30 of them mislabelled, 100 trusted, 150 to test; names that bite."""
    digits = load_digits()
    ids = [f"<b>{i}</b>.png" for i in range(len(digits))]
    digits = Examples.from_arrays(digits.images, digits.labels, NAMES, ids)
    train = digits.subset(range(200))
    labels = train.labels.clone()
    labels[:30] = (labels[:30] + 1) % 10
    return (
        train.with_labels(labels),
        digits.subset(range(200, 300)),
        digits.subset(range(300, 450)),
    )


def make_run(path: Path, **settings: object) -> Path:
    train, trusted, test = messy_digits()
    # Measured: 23 of 30 wrong labels and no others look wrong.
    values = {"epochs": 20, "batch_size": 32, "lr": 0.1, "device": "cpu", **settings}
    config = autodo.Config(**values)  # type: ignore[arg-type]
    autodo.fit(network(), train, trusted, test=test, config=config, out=path, progress=False)
    return path


def make_compared_run(path: Path) -> Path:
    """A run beside a worse method."""
    make_run(path)
    worse = np.full((10, 10), 2)
    np.fill_diagonal(worse, 10)
    save_baselines(path, [Baseline(name="plain", confusion=tuple(map(tuple, worse.tolist())))])
    return path
