"""SVHN's cropped digits as their authors publish them: train_32x32.mat and its like."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from autodo.data.labels import default_names
from autodo.data.sources.arrays import Arrays, ArraySource
from autodo.errors import InputError

SPLITS = ("train", "test", "extra")


def mat_file(folder: Path, split: str) -> Path:
    """Where a split lies."""
    return folder / f"{split}_32x32.mat"


def mat(file: Path) -> ArraySource:
    """One .mat as a source. In that format the digit 0 has the label 10."""

    def load() -> Arrays:
        # Imported here: slow, and needed by this one format. MATLAB files hold no code.
        from scipy.io import loadmat

        try:
            held = loadmat(file, variable_names=["X", "y"])
        except Exception as error:  # on damaged files scipy raises nearly every type
            raise InputError(
                f"'{file}' cannot be read as a MATLAB file",
                f"{type(error).__name__}: {error}",
                "download it again",
            ) from error
        if "X" not in held or "y" not in held or held["X"].ndim != 4:
            raise InputError(
                f"'{file}' is not SVHN's cropped digits",
                "images X (32, 32, 3, N) and labels y (N, 1) belong in it",
                "give train_32x32.mat or test_32x32.mat",
            )
        images = np.ascontiguousarray(held["X"].transpose(3, 2, 0, 1))
        labels = held["y"].reshape(-1).astype(np.int64)
        return Arrays(images, np.where(labels == 10, 0, labels), default_names(10))

    return ArraySource(load, files=[file], place=file, identity=["svhn"])
