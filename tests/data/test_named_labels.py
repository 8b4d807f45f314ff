"""Labels that are names: numbered together; refused where it is not said which class is meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from autodo.data.named_labels import number
from autodo.errors import InputError

NAMES = ["dog", "cat", "dog", "emu"]


def refused(*words: str, **options: Any) -> None:
    with pytest.raises(InputError) as caught:
        number(**options)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    "labels", [NAMES, tuple(NAMES), np.array(NAMES), np.array(NAMES, dtype=object)]
)
def test_names_of_all_sets_are_numbered_together(labels: Any) -> None:
    (train, trusted), names = number({"train": labels, "trusted": ["ape", "cat"]})
    assert names == ("ape", "cat", "dog", "emu")
    assert (train.tolist(), trusted.tolist()) == ([2, 1, 2, 3], [0, 1])
    assert train.dtype == np.int64


@pytest.mark.parametrize("labels", [[2, 0, 1], np.array([2, 0]), torch.tensor([1]), [0.5], [[1]]])
def test_what_is_no_name_stays_as_it_is(labels: Any) -> None:
    (first, second), names = number({"train": labels, "trusted": labels})
    assert first is labels
    assert second is labels
    assert names is None


def test_class_names_say_which_number_a_name_has() -> None:
    (train, trusted), names = number({"train": NAMES, "trusted": [0, 2]}, ["emu", "dog", "cat"])
    assert names == ["emu", "dog", "cat"]
    assert (train.tolist(), trusted) == ([1, 2, 1, 0], [0, 2])


def test_names_that_cannot_be_told_are_refused() -> None:
    refused("train[1] has the label 'cat'", labels={"train": NAMES}, class_names=["dog", "emu"])
    refused("names such as 'dog'", "those of trusted", labels={"train": NAMES, "trusted": [0, 1]})
    for odd in (None, float("nan"), 3):
        refused(f"label of train[1] is {odd}", "'dog'", labels={"train": ["dog", odd, "cat"]})
