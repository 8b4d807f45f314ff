"""How many of the labels to come are wrong, judged by those that were looked at.

The run's own belief is that a label is wrong with probability 1 - score. What a person decides
corrects it: P(wrong) = sigmoid(a + b x), x = logit(1 - score), with a, b the most probable ones
under a ~ Normal(0, 3/2), b ~ Normal(1, 1/2) and the decisions. Without any, a = 0 and b = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FARTHEST = 7.0
"""Of x: a score of 0 or 1 is a rounded number and not a certainty."""
PRIOR_MEAN = np.array([0.0, 1.0])
PRIOR_DEVIATION = np.array([1.5, 0.5])
_STEPS = 30


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """P(wrong | x) = sigmoid(a + b x), and how sure a and b are."""

    mean: np.ndarray
    """(2,): a, b."""
    covariance: np.ndarray
    """(2, 2), by Laplace's approximation."""

    def wrong(self, score: np.ndarray) -> tuple[float, float]:
        """How many of the labels with these scores are wrong: expectation and deviation."""
        x = _with_one(doubt(score))
        p = _sigmoid(x @ self.mean)
        slope = x.T @ (p * (1 - p))
        variance = float((p * (1 - p)).sum() + slope @ self.covariance @ slope)
        return float(p.sum()), variance**0.5


def doubt(score: np.ndarray) -> np.ndarray:
    """x of label scores (n,): the logarithm of the odds that the label is wrong.

    >>> doubt(np.array([0.5, 0.0])).tolist()
    [0.0, 7.0]
    """
    score = np.asarray(score, np.float64)
    with np.errstate(divide="ignore"):
        return np.clip(np.log1p(-score) - np.log(score), -FARTHEST, FARTHEST)


def estimate(score: np.ndarray, wrong: np.ndarray) -> Estimate:
    """From what was decided: scores (n,) and whether the given label was wrong (n,).

    >>> surer = estimate(np.full(50, 0.5), np.ones(50))
    >>> before = estimate(np.empty(0), np.empty(0)).wrong(np.full(100, 0.5))[0]
    >>> before, round(surer.wrong(np.full(100, 0.5))[0])
    (50.0, 97)
    """
    x, y = _with_one(doubt(score)), np.asarray(wrong, np.float64)
    precision = np.diag(PRIOR_DEVIATION**-2.0)

    def energy(mean: np.ndarray) -> float:
        z, away = x @ mean, mean - PRIOR_MEAN
        return float((np.logaddexp(0, z) - y * z).sum() + away @ precision @ away / 2)

    mean = PRIOR_MEAN.copy()
    for _ in range(_STEPS):  # Newton's method; the energy is convex, and a step must lower it
        p = _sigmoid(x @ mean)
        gradient = x.T @ (p - y) + precision @ (mean - PRIOR_MEAN)
        hessian = (x * (p * (1 - p))[:, None]).T @ x + precision
        step = np.linalg.solve(hessian, gradient)
        while energy(mean - step) > energy(mean) and np.abs(step).max() > 1e-9:
            step /= 2
        mean = mean - step
        if np.abs(step).max() < 1e-9:
            break
    return Estimate(mean=mean, covariance=np.linalg.inv(hessian))


def _with_one(x: np.ndarray) -> np.ndarray:
    return np.stack([np.ones_like(x), x], axis=-1)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))
