"""How many of the next labels are wrong: right on average, and as sure as it says."""

from __future__ import annotations

import numpy as np
import pytest

from autodo.review.estimate import estimate


def made(rng: np.random.Generator, shift: float, slope: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores, the surest wrong first, of labels that are wrong with sigmoid(shift + slope x)."""
    x = np.sort(rng.normal(1, 2, 400))[::-1]
    wrong = rng.random(400) < 1 / (1 + np.exp(-(shift + slope * x)))
    return 1 / (1 + np.exp(x)), wrong


def test_without_decisions_it_is_what_the_run_believes() -> None:
    score = np.array([0.1, 0.5, 0.75])
    assert estimate(np.empty(0), np.empty(0)).wrong(score)[0] == pytest.approx(0.9 + 0.5 + 0.25)


@pytest.mark.parametrize(
    ("shift", "slope"), [(0, 1), (-1, 1), (1, 0.6), (-1.5, 0.7), (0, 1.5)], ids=str
)
def test_the_bounds_hold_the_truth_nine_times_of_ten(shift: float, slope: float) -> None:
    rng = np.random.default_rng(0)
    inside = errors = before = 0.0
    for _ in range(100):
        score, wrong = made(rng, shift, slope)
        truth = wrong[60:160].sum()
        mean, deviation = estimate(score[:60], wrong[:60]).wrong(score[60:160])
        inside += abs(mean - truth) <= 1.645 * deviation + 0.5
        errors += abs(mean - truth) / 100
        before += abs((1 - score[60:160]).sum() - truth) / 100
    assert inside >= 80
    # Measured: 2.5 to 8.9, while the run's own belief is off by up to 38.7.
    assert errors < max(before / 3, 9.5)


def test_scores_of_nought_and_one_are_no_certainties() -> None:
    mean, deviation = estimate(np.array([0.0, 1.0]), np.array([0, 1])).wrong(np.array([0.0, 1.0]))
    assert np.isfinite([mean, deviation]).all()
