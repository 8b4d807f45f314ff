"""The digits by name: parts that share nothing, the same every time, without a file."""

from __future__ import annotations

import pytest
import torch

from autodo.data.sources import load
from autodo.errors import InputError


def test_parts_share_nothing_and_are_the_same_every_time() -> None:
    train, test = load("digits"), load("digits", "test")
    assert not set(train.ids) & set(test.ids)
    assert len(train) + len(test) == 1797
    assert torch.equal(train.images, load("digits", "train").images)


def test_other_parts_and_misspelt_names() -> None:
    with pytest.raises(InputError, match="digits:train"):
        load("digits", "validation")
    with pytest.raises(InputError, match="digits"):
        load("digist")
