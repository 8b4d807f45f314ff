"""Distortions and splits: exact counts, the same by seed, another by another seed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from autodo.data import load_digits, step_imbalance, stratified_split, uniform_noise
from autodo.errors import InputError

quick = settings(max_examples=60, deadline=None)
class_counts = st.lists(st.integers(1, 40), min_size=2, max_size=8)


def labels_of(counts: list[int]) -> torch.Tensor:
    labels = np.repeat(np.arange(len(counts)), counts)
    return torch.from_numpy(np.random.default_rng(0).permutation(labels))


@quick
@given(counts=class_counts, ratio=st.floats(1, 5), seed=st.integers(0, 9))
def test_imbalance_cuts_the_upper_half_to_its_share(
    counts: list[int], ratio: float, seed: int
) -> None:
    labels, half = labels_of(counts), len(counts) // 2
    common, rare = sum(counts[:half]), sum(counts[half:])
    try:
        kept = step_imbalance(labels, ratio, num_classes=len(counts), seed=seed)
    except InputError:  # a class would be left empty, which a test below looks at
        reject()
    assert (labels[kept] < half).sum() == common
    assert (labels[kept] >= half).sum() == min(int(common / ratio), rare)
    assert kept.tolist() == sorted(set(kept.tolist()))
    assert set(labels[kept].tolist()) == set(range(len(counts)))
    again = step_imbalance(labels, ratio, num_classes=len(counts), seed=seed)
    assert torch.equal(kept, again)


def test_imbalance_of_the_digits_is_the_published_one() -> None:
    labels = load_digits().labels
    kept = step_imbalance(labels, 10, num_classes=10, seed=0)
    common = int((labels < 5).sum())
    assert len(kept) == common + common // 10
    other = step_imbalance(labels, 10, num_classes=10, seed=1)
    assert len(other) == len(kept)
    assert not torch.equal(other, kept)


def test_imbalance_that_empties_a_class_names_it() -> None:
    with pytest.raises(InputError, match=r"ratio of 100 leaves no example of class(es)? .*3"):
        step_imbalance(labels_of([50, 50, 200, 1]), 100, num_classes=4, seed=0)


def test_imbalance_leaves_a_class_alone_that_was_empty_before() -> None:
    kept = step_imbalance(labels_of([50, 50, 50]), 5, num_classes=5, seed=0)
    assert len(kept) == 100 + 20


@pytest.mark.parametrize("ratio", [0.5, 0, -1, float("nan"), float("inf")])
def test_imbalance_ratio_below_one_is_refused(ratio: float) -> None:
    with pytest.raises(InputError, match=f"ratio of {ratio}"):
        step_imbalance(labels_of([5, 5]), ratio, num_classes=2, seed=0)


@quick
@given(counts=class_counts, rate=st.floats(0, 1), seed=st.integers(0, 9))
def test_noise_touches_at_most_its_share_and_is_the_same_by_seed(
    counts: list[int], rate: float, seed: int
) -> None:
    labels = labels_of(counts)
    before = labels.clone()
    noisy = uniform_noise(labels, rate, num_classes=len(counts), seed=seed)
    assert torch.equal(labels, before)
    assert (noisy != labels).sum() <= round(rate * len(labels))
    assert noisy.dtype == torch.int64
    assert noisy.min() >= 0
    assert noisy.max() < len(counts)
    assert torch.equal(noisy, uniform_noise(labels, rate, num_classes=len(counts), seed=seed))


def test_exactly_the_rounded_share_is_redrawn() -> None:
    # With so many classes hardly any redrawn label is the old one: the count shows through.
    labels = torch.zeros(1001, dtype=torch.int64)
    noisy = uniform_noise(labels, 0.25, num_classes=10**9, seed=0)
    assert (noisy != 0).sum() == round(0.25 * 1001)


def test_noise_is_uniform_over_all_classes_and_another_by_another_seed() -> None:
    labels = torch.zeros(10_000, dtype=torch.int64)
    noisy = uniform_noise(labels, 1.0, num_classes=10, seed=0)
    assert noisy.bincount().min() > 900
    assert noisy.bincount().max() < 1100
    assert not torch.equal(noisy, uniform_noise(labels, 1.0, num_classes=10, seed=1))


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_noise_rate_outside_the_unit_interval_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match=f"rate of {rate}"):
        uniform_noise(labels_of([5, 5]), rate, num_classes=2, seed=0)


def test_labels_beyond_the_number_of_classes_are_refused() -> None:
    for distort in (step_imbalance, uniform_noise):
        with pytest.raises(InputError, match=r"outside 0 \.\. 1"):
            distort(labels_of([5, 5, 5]), 1, num_classes=2, seed=0)


@quick
@given(counts=class_counts, share=st.floats(0, 1), seed=st.integers(0, 9))
def test_split_is_exact_and_as_even_as_whole_numbers_allow(
    counts: list[int], share: float, seed: int
) -> None:
    labels = labels_of(counts)
    size = max(1, int(share * len(labels)))
    assume(size < len(labels))
    rest, picked = stratified_split(labels, size, seed=seed)
    assert len(picked) == size
    assert sorted(rest.tolist() + picked.tolist()) == list(range(len(labels)))
    shares = labels[picked].bincount(minlength=len(counts))
    exact = torch.tensor(counts) * size / len(labels)
    if size >= len(counts):
        assert shares.min() >= 1
    if exact.min() >= 1:
        assert (shares - exact).abs().max() < 1
    assert torch.equal(picked, stratified_split(labels, size, seed=seed)[1])


def test_another_seed_picks_others_in_the_same_shares() -> None:
    labels = load_digits().labels
    (_, a), (_, b) = (stratified_split(labels, 200, seed=seed) for seed in (0, 1))
    assert not torch.equal(a, b)
    assert torch.equal(labels[a].bincount(), labels[b].bincount())


def test_what_is_left_over_goes_to_the_largest_remainders() -> None:
    labels = labels_of([55, 30, 15])  # exact shares of 7 points: 3.85, 2.1 and 1.05
    _, picked = stratified_split(labels, 7, seed=0)
    assert labels[picked].bincount().tolist() == [4, 2, 1]


def test_a_rare_class_is_picked_once_at_the_cost_of_the_best_served() -> None:
    labels = labels_of([1000, 1, 1])
    _, picked = stratified_split(labels, 5, seed=0)
    assert labels[picked].bincount().tolist() == [3, 1, 1]


@pytest.mark.parametrize("size", [0, -1, 10, 11])
def test_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=f"cannot pick {size} of 10 points.*1 to 9"):
        stratified_split(labels_of([5, 5]), size, seed=0)
