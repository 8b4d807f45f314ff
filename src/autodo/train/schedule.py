"""Schedules: of the learning rate (warm-up from a tenth, then a cosine to 0.001), of averages."""

from __future__ import annotations

import math

WARMUP_START, FINAL = 0.1, 0.001


def cosine(step: int, total: int, warmup: int = 0) -> float:
    """Factor of the peak rate at ``step`` of ``total``.

    >>> [round(cosine(s, 11, 0), 4) for s in (0, 5, 10)]
    [1.0, 0.5005, 0.001]
    >>> round(cosine(0, 100, 10), 3), cosine(10, 100, 10)
    (0.1, 1.0)
    """
    if step < warmup:
        return WARMUP_START + (1 - WARMUP_START) * step / warmup
    progress = (step - warmup) / max(1, total - 1 - warmup)
    return FINAL + (1 - FINAL) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def mixing(visits: float, share: float) -> float:
    """How far to move at each of ``visits`` towards what it brings.

    In the end the visits have the weight ``share`` together, the last ones most of it, and the
    start has the rest.

    >>> rate = mixing(10, 0.85)
    >>> round(rate, 4), round((1 - rate) ** 10, 4)
    (0.1728, 0.15)
    """
    return 1 - (1 - share) ** (1 / visits)
