"""A stratified split: pick exactly so many points, with the class shares of the whole.

Used to take a trusted or a test set out of one pool. Shares are given out by
largest remainder in whole numbers, so the sizes are exact and no rounding is lost.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from autodo.errors import InputError

TRUSTED_SIZES = {"svhn": 23_257, "cifar10": 10_000, "cifar100": 10_000, "imagenet": 256_233}
"""The paper's trusted points, taken out of the training set: of SVHN what leaves 50,000 of 73,257
(the paper says 32%), of CIFAR's 50,000 and ImageNet's 1,281,167 a fifth."""


def stratified_split(labels: Tensor, size: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Split the points of labels (N,) into (rest, picked), indices of N - size and of size points.

    Each class is picked in proportion to its share; where size allows, every class is
    picked at least once. Both indices are sorted.

    >>> labels = torch.tensor([0] * 90 + [1] * 9 + [2])
    >>> rest, picked = stratified_split(labels, 20, seed=0)
    >>> labels[picked].bincount(), len(rest)
    (tensor([18,  1,  1]), 80)
    """
    given = labels.cpu().numpy()
    if not 0 < size < len(given):
        raise InputError(
            f"cannot pick {size} of {len(given):,} points",
            "both parts of a split hold at least one point",
            f"give a size from 1 to {len(given) - 1}",
        )
    classes, counts = np.unique(given, return_counts=True)
    generator = np.random.default_rng(seed)
    picked = np.concatenate(
        [
            generator.choice(np.flatnonzero(given == c), n, replace=False)
            for c, n in zip(classes, _shares(counts, size), strict=True)
        ]
    )
    rest = np.setdiff1d(np.arange(len(given)), picked)
    return torch.from_numpy(rest), torch.from_numpy(np.sort(picked))


def _shares(counts: np.ndarray, size: int) -> np.ndarray:
    """How many of each class: largest remainder, then one for each class that got none."""
    shares, remainders = np.divmod(counts * size, counts.sum())
    # A stable order breaks ties by class number, so the counts do not depend on the seed.
    shares[np.argsort(-remainders, kind="stable")[: size - shares.sum()]] += 1
    if size >= len(counts):
        for c in np.flatnonzero(shares == 0):
            # The giver is the class that is furthest above its exact share.
            excess = np.where(shares > 1, shares * counts.sum() - counts * size, -np.inf)
            shares[np.argmax(excess)] -= 1
            shares[c] += 1
    return shares
