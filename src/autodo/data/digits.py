"""The 8x8 handwritten digits that come with scikit-learn: real data without a download."""

from __future__ import annotations

import numpy as np

from autodo.data.examples import Examples
from autodo.data.split import stratified_split
from autodo.errors import InputError

TEST = 597
"""Digits held out for testing, so that 1,000 remain for train once 200 are trusted."""


def load_digits() -> Examples:
    """The 1,797 digits, images (1797, 1, 8, 8) as float32 in [0, 1].

    >>> digits = load_digits()
    >>> digits.images.shape, float(digits.images.max()), digits.num_classes
    (torch.Size([1797, 1, 8, 8]), 1.0, 10)
    """
    from sklearn.datasets import load_digits as its_digits  # 1.5 s, which others need not wait

    bunch = its_digits()
    images = bunch.images.astype(np.float32) / 16
    return Examples.from_arrays(images, bunch.target, name="digits")


def load_digits_part(split: str | None) -> Examples:
    """The part train (the default) or test of the digits, a fixed stratified split.

    >>> len(load_digits_part("train")), len(load_digits_part("test"))
    (1200, 597)
    """
    digits = load_digits()
    rest, test = stratified_split(digits.labels, TEST, seed=0)
    parts = {None: rest, "train": rest, "test": test}
    if split not in parts:
        raise InputError(
            f"digits has no part '{split}'",
            "it has train and test",
            "write digits:train or digits:test",
        )
    return digits.subset(parts[split])
