"""The two distortions of the paper's experiments: step imbalance and uniform label noise.

Both work on labels alone and are functions of their seed (a numpy generator), so
a distorted set can be made again anywhere. Figures as in design.md, section 6.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from autodo.data import wording
from autodo.data.labels import check_range, default_names
from autodo.errors import InputError


def step_imbalance(labels: Tensor, ratio: float, *, num_classes: int, seed: int) -> Tensor:
    """Make the classes C/2 .. C-1 rare; labels (N,) -> index (M,) of the points kept, sorted.

    That half is cut to (number of points in the other half) / ratio, rounded down, drawn
    over the whole half; it is left alone if it is as small already.

    >>> labels = torch.arange(4).repeat(100)
    >>> kept = labels[step_imbalance(labels, 10, num_classes=4, seed=0)]
    >>> (kept < 2).sum(), (kept >= 2).sum()
    (tensor(200), tensor(20))
    """
    if not (math.isfinite(ratio) and ratio >= 1):
        raise InputError(
            f"an imbalance ratio of {ratio}",
            "the ratio is how many times more points the common half of the classes has",
            "give a number of 1 or more",
        )
    check_range(labels, num_classes, name="labels")
    given = labels.cpu().numpy()
    rare = np.flatnonzero(given >= num_classes // 2)
    common = np.flatnonzero(given < num_classes // 2)
    size = min(int(len(common) / ratio), len(rare))
    drawn = np.random.default_rng(seed).choice(rare, size, replace=False)

    lost = sorted(set(given[rare].tolist()) - set(given[drawn].tolist()))
    if lost:
        raise InputError(
            f"an imbalance ratio of {ratio:g} leaves no example of "
            f"{wording.classes(lost, default_names(num_classes))}",
            f"only {len(common):,} / {ratio:g} = {size:,} of {len(rare):,} points are kept "
            f"of classes {num_classes // 2} .. {num_classes - 1} together",
            "take a smaller ratio, a larger set, or another seed",
        )
    return torch.from_numpy(np.sort(np.concatenate([common, drawn])))


def uniform_noise(labels: Tensor, rate: float, *, num_classes: int, seed: int) -> Tensor:
    """Labels (N,) of which round(rate * N) random ones are drawn anew, uniform over all classes.

    A redrawn label may be the old one, so about rate * (1 - 1/C) of the labels become wrong.

    >>> labels = torch.zeros(1000, dtype=torch.int64)
    >>> 0.16 < uniform_noise(labels, 0.2, num_classes=10, seed=0).bool().float().mean() < 0.2
    tensor(True)
    """
    if not 0 <= rate <= 1:
        raise InputError(
            f"a label noise rate of {rate}",
            "the rate is the share of labels that are drawn anew",
            "give a number from 0 to 1",
        )
    check_range(labels, num_classes, name="labels")
    generator = np.random.default_rng(seed)
    chosen = generator.choice(len(labels), round(rate * len(labels)), replace=False)
    noisy = labels.cpu().numpy().copy()
    noisy[chosen] = generator.integers(num_classes, size=len(chosen))
    return torch.from_numpy(noisy)
