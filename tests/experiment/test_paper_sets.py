"""The sets of a cell: what is split, what is distorted, what the ablations put in its place."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from paper_data import TINY

from autodo.data import Examples
from autodo.data.split import TRUSTED_SIZES
from autodo.errors import InputError
from autodo.experiment.paper.cells import find
from autodo.experiment.paper.protocol import FULL
from autodo.experiment.paper.sets import load_pair, make_task

POOL, TEST = 74_000, 1000


@pytest.fixture(scope="module")
def pair() -> tuple[Examples, Examples]:
    """Sets larger than SVHN's trusted size, of single pixels."""
    rng = np.random.default_rng(0)
    return tuple(  # type: ignore[return-value]
        Examples.from_arrays(rng.integers(0, 255, (n, 3, 1, 1), dtype=np.uint8), np.arange(n) % 10)
        for n in (POOL, TEST)
    )


def test_the_paper_splits_first_and_distorts_what_is_left(
    pair: tuple[Examples, Examples],
) -> None:
    task = make_task(find("svhn", "100-0.1", "aws"), *pair, scale=FULL, seed=0)
    assert len(task.trusted) == TRUSTED_SIZES["svhn"]
    counts = task.trusted.labels.bincount()
    assert int(counts.max() - counts.min()) <= 1  # neither imbalance nor noise
    common = int((task.true_labels < 5).sum())
    assert int((task.true_labels >= 5).sum()) == common // 100
    # A tenth drawn over all ten classes: nine in ten of those are wrong.
    assert float(task.wrong.float().mean()) == pytest.approx(0.09, abs=0.005)
    assert not set(task.train.ids) & set(task.trusted.ids)
    assert len(task.test) == TEST


def test_undistorted_sets_keep_every_point_and_label(pair: tuple[Examples, Examples]) -> None:
    task = make_task(find("svhn", "1-0.0", "aws"), *pair, scale=FULL, seed=0)
    assert len(task.train) + len(task.trusted) == POOL
    assert not task.wrong.any()


def test_seeds_split_and_distort_differently_and_repeat(pair: tuple[Examples, Examples]) -> None:
    cell = find("svhn", "100-0.1", "aws")
    one, again, other = (make_task(cell, *pair, scale=FULL, seed=seed) for seed in (0, 0, 1))
    assert one.train.ids == again.train.ids
    assert torch.equal(one.train.labels, again.train.labels)
    assert one.trusted.ids != other.trusted.ids
    assert one.train.ids != other.train.ids


def test_all_methods_of_a_cell_see_the_same_sets(pair: tuple[Examples, Examples]) -> None:
    tasks = [
        make_task(find("svhn", "100-0.1", method), *pair, scale=FULL, seed=0)
        for method in ("baseline", "aws")
    ]
    assert tasks[0].train.ids == tasks[1].train.ids
    assert torch.equal(tasks[0].train.labels, tasks[1].train.labels)


def test_table_5_estimates_on_the_test_set_and_trains_on_the_split(
    pair: tuple[Examples, Examples],
) -> None:
    task = make_task(find("svhn", "1-0.0", "aws-on-test"), *pair, scale=FULL, seed=0)
    plain = make_task(find("svhn", "1-0.0", "aws"), *pair, scale=FULL, seed=0)
    assert task.trusted is task.test
    assert task.train.ids == plain.train.ids


def test_table_6_trains_and_estimates_on_all_training_data(
    pair: tuple[Examples, Examples],
) -> None:
    task = make_task(find("svhn", "1-0.0", "aws-on-all"), *pair, scale=FULL, seed=0)
    assert len(task.train) == len(task.trusted) == POOL


def test_a_scale_takes_stratified_parts_and_fewer_classes(data_dir: Path) -> None:
    scale = dataclasses.replace(TINY, classes=4)
    train, test = load_pair("cifar10", scale=scale, data_dir=data_dir, progress=False)
    assert train.class_names == test.class_names == ("0", "3", "6", "9")
    assert sorted(train.labels.unique().tolist()) == [0, 1, 2, 3]
    scale = dataclasses.replace(scale, train=200, trusted=80, test=100)
    task = make_task(find("cifar10", "1-0.0", "aws"), train, test, scale=scale, seed=0)
    assert (len(task.train), len(task.trusted), len(task.test)) == (200, 80, 100)
    assert task.train.image_shape == (3, 8, 8)
    assert int(task.trusted.labels.bincount().min()) >= 18


def test_data_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no train split of svhn"):
        load_pair("svhn", scale=TINY, data_dir=tmp_path, progress=False)
