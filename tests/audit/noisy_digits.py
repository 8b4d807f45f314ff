"""Digits with known wrong labels, as embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_digits


@dataclass(frozen=True)
class Digits:
    """Pixels (N, 64) of digits, given and true labels, and trusted ones beside them."""

    embeddings: np.ndarray
    given: np.ndarray
    true: np.ndarray
    trusted: np.ndarray
    trusted_labels: np.ndarray

    @property
    def wrong(self) -> np.ndarray:
        return self.given != self.true


def digits(count: int = 400, trusted: int = 100, noise: float = 0.2, seed: int = 0) -> Digits:
    """``noise`` of the labels are moved to another class at random; every class is trusted."""
    data, rng = load_digits(), np.random.default_rng(seed)
    order = rng.permutation(len(data.target))
    # The first of every class is trusted, so that none is missing whatever the seed.
    first = [next(i for i in order if data.target[i] == c) for c in range(10)]
    order = np.array(first + [i for i in order if i not in first])
    right, rest = order[:trusted], order[trusted : trusted + count]
    true = data.target[rest]
    given = true.copy()
    moved = rng.permutation(count)[: round(noise * count)]
    given[moved] = (true[moved] + rng.integers(1, 10, len(moved))) % 10
    pixels = data.data.astype(np.float32)
    return Digits(pixels[rest], given, true, pixels[right], data.target[right])
