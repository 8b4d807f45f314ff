"""Trusted points that hyper steps follow."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from autodo.config import Config
from autodo.data.examples import Examples
from autodo.data.loader import Loader
from autodo.train.trusted import trusted_features


def loader(count: int) -> Loader:
    images = torch.arange(count, dtype=torch.float32).view(-1, 1, 1, 1).expand(-1, 1, 8, 8)
    return Loader(Examples.from_arrays(images / count, torch.arange(count) % 3), "cpu")


def drawn(count: int, steps: int, seed: int = 0, **changes) -> list[tuple[list[int], list[int]]]:
    """Which points each of five hyper steps follows, with their labels, and the passes it took."""
    config = Config(hyper_batch_size=4, **changes)
    passes: list[int] = []

    def encode(images: torch.Tensor) -> torch.Tensor:
        passes.append(len(images))
        return images.flatten(1)[:, :1] * count

    found = trusted_features(loader(count), encode, config, hyper_steps=steps, seed=seed)
    first = [(f[:, 0].round().int().tolist(), y.tolist()) for f, y in islice(found, 5)]
    assert max(passes) <= 4
    return [*first, (passes, [])]


def test_a_loop_follows_all_trusted_points_encoded_once():
    *steps, (passes, _) = drawn(10, 100)
    assert passes == [4, 4, 2]
    for points, labels in steps:
        assert sorted(points) == list(range(10))
        assert labels == [k % 3 for k in points]


def test_of_many_trusted_points_a_loop_follows_some_and_the_next_loop_others():
    *steps, (passes, _) = drawn(100, 1000, trusted_points=12)
    assert passes == [4, 4, 4]
    assert len(set(steps[0][0])) == 12
    assert all(step == steps[0] for step in steps)
    assert drawn(100, 1000, trusted_points=12)[0] == steps[0]
    assert drawn(100, 1000, seed=1, trusted_points=12)[0] != steps[0]


def test_encoding_takes_no_more_than_a_quarter_of_what_the_loop_visits():
    assert len(drawn(100, 8)[0][0]) == 8
    assert len(drawn(100, 2)[0][0]) == 4  # but a batch at least


@pytest.mark.parametrize("every", [1, 2])
def test_the_papers_way_takes_a_batch_for_every_so_many_steps(every):
    *steps, (passes, _) = drawn(100, 1000, trusted_every=every)
    assert passes == [4] * (5 if every == 1 else 3)
    assert (steps[0] == steps[1]) == (every == 2)
    assert steps[1] != steps[2]
