"""Small sets in the place of the paper's: real digits under the names of its data sets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from autodo.experiment.paper.protocol import Scale

TINY = Scale(
    name="tiny",
    network="small_cnn",
    image_size=8,
    train=700,
    trusted=200,
    test=300,
    epochs=3,
    batch_size=64,
    lr=0.05,
    embedded=40,
)

POLICY = {
    "name": "two sub-policies",
    "ranges": {"Rotate": [0, 30], "Invert": [0, 1]},
    "subpolicies": [[["Rotate", 0.5, 0.5], ["Invert", 0.1, 0.0]], [["Invert", 0.2, 0.0]]],
}


def write_digits(folder: Path, *names: str) -> Path:
    """train.npz and test.npz of RGB digits below ``folder`` for each name."""
    digits = load_digits()
    grey = np.rint(digits.images * 255 / 16).astype(np.uint8)
    images = np.repeat(grey[..., None], 3, axis=3)
    for name in names:
        (folder / name).mkdir(parents=True)
        for split, part in (("train", slice(0, 1300)), ("test", slice(1300, None))):
            np.savez(
                folder / name / f"{split}.npz", images=images[part], labels=digits.target[part]
            )
    return folder


def write_policy(path: Path) -> Path:
    path.write_text(json.dumps(POLICY))
    return path
