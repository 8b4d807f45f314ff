"""Examples: what it accepts, what it refuses, and how sets are derived from sets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from autodo.data import Examples, load_digits
from autodo.errors import InputError


def make(n: int = 6, classes: int = 3, **changes: object) -> Examples:
    given: dict = {
        "images": torch.rand(n, 1, 4, 4, generator=torch.Generator().manual_seed(0)),
        "labels": torch.arange(n) % classes,
        "class_names": tuple(str(c) for c in range(classes)),
    }
    return Examples(**(given | changes))


def test_items_are_pairs_of_tensor_and_int() -> None:
    data = make()
    image, label = data[4]
    assert torch.equal(image, data.images[4])
    assert type(label) is int
    assert label == 1
    assert len(data) == 6


def test_ids_default_to_the_index_and_follow_a_subset() -> None:
    picked = make().subset(torch.tensor([5, 0]))
    assert picked.ids == ("5", "0")
    assert picked.labels.tolist() == [2, 0]
    assert picked.num_classes == 3


def test_a_subset_counts_negative_indices_from_the_end_and_refuses_those_beyond() -> None:
    data = make(ids=tuple("abcdef"))
    picked = data.subset([-1, 2, -6, 2])
    assert picked.ids == ("f", "c", "a", "c")
    assert torch.equal(picked.images, data.images[[5, 2, 0, 2]])
    assert picked.labels.tolist() == [2, 2, 0, 2]
    for beyond in (6, -7):
        with pytest.raises(IndexError):
            data.subset([0, beyond])


def test_with_labels_leaves_the_original_alone() -> None:
    data = make(ids=tuple("abcdef"))
    changed = data.with_labels(torch.zeros(6, dtype=torch.int64))
    assert changed.labels.sum() == 0
    assert data.labels.sum() == 6
    assert changed.images is data.images
    assert changed.ids == data.ids


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((6, 3, 8, 8), (3, 8, 8)),
        ((6, 8, 9, 3), (3, 8, 9)),
        ((6, 8, 9, 1), (1, 8, 9)),
        ((6, 8, 9), (1, 8, 9)),
        ((6, 5, 8, 9), (5, 8, 9)),
        ((6, 1, 8, 3), (1, 8, 3)),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64", "float16", ">f4"])
def test_from_arrays_finds_the_channels(shape: tuple, expected: tuple, dtype: str) -> None:
    data = Examples.from_arrays(np.ones(shape, dtype=dtype), np.arange(6))
    assert data.image_shape == expected
    assert data.images.dtype == (torch.uint8 if dtype == "uint8" else torch.float32)
    assert data.class_names == ("0", "1", "2", "3", "4", "5")


def test_from_arrays_moves_the_pixels_and_not_only_the_shape() -> None:
    photo = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    data = Examples.from_arrays(photo, [0, 1], ["cat", "dog"], ["a.png", "b.png"])
    assert data.images[1, 2, 3, 4] == photo[1, 3, 4, 2]
    assert data.class_names == ("cat", "dog")
    assert data.ids == ("a.png", "b.png")


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64"])
def test_from_arrays_takes_any_integer_labels(dtype: str) -> None:
    data = Examples.from_arrays(torch.rand(2, 4, 4), np.array([0, 1], dtype=dtype))
    assert data.labels.dtype == torch.int64


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.array([0.0, 1.0]), r"floats such as 0\.0.*astype"),
        (torch.tensor([0.5, 1.0]), r"floats such as 0\.5.*long"),
        (np.eye(2), r"shape \(2, 2\).*one-hot.*argmax"),
        (["cat", "dog"], r"strings such as 'cat'.*class_names"),
        (np.array(["cat", "dog"], dtype=object), "strings such as .*cat"),
        ([True, False], r"bools such as True.*int"),
        (torch.tensor([True, False]), "bools"),
        ([[0], [0, 1]], r"objects such as \[0\]"),
        (3, "single value 3"),
    ],
)
def test_labels_that_are_not_integers_are_named(labels: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Examples.from_arrays(torch.rand(2, 4, 4), labels, name="mine")


def test_labels_out_of_range_are_named_by_index_and_id() -> None:
    with pytest.raises(InputError, match=r"2 labels .*0 \.\. 2.*examples\[1\] \('b'\) has label 7"):
        make(n=3, labels=torch.tensor([0, 7, 3]), ids=("a", "b", "c"))
    with pytest.raises(InputError, match=r"examples\[2\] has label -1.*negative"):
        make(n=3, labels=torch.tensor([0, 1, -1]))
    with pytest.raises(InputError, match=r"mine\[0\] has label -1"):
        Examples.from_arrays(torch.rand(1, 4, 4), [-1], name="mine")


def test_labels_that_look_like_ids_are_refused_before_they_fill_the_memory() -> None:
    with pytest.raises(InputError, match=r"labels of mine reach 1,000,000, of 2 examples.*ids"):
        Examples.from_arrays(torch.rand(2, 4, 4), [1, 10**6], name="mine")
    assert Examples.from_arrays(torch.rand(2, 4, 4), [1, 21_840]).num_classes == 21_841


def test_pixels_that_are_not_finite_are_named_with_their_number() -> None:
    images = torch.rand(6, 1, 4, 4)
    images[2, 0, 0, :3] = float("nan")
    images[5, 0, 0, 0] = float("inf")
    with pytest.raises(
        InputError, match=r"2 images of examples: examples\[2\] \(3 pixels\), examples\[5\] \(1 p"
    ):
        make(images=images)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"images": torch.rand(6, 4, 4)}, r"shape \(6, 4, 4\).*from_arrays"),
        ({"images": torch.rand(6, 1, 4, 4).double()}, "float64"),
        ({"labels": torch.zeros(6)}, "float32.*from_arrays"),
        ({"labels": torch.zeros(5, dtype=torch.int64)}, "6 images, 5 labels and 6 ids"),
        ({"ids": ("a",)}, "6 images, 6 labels and 1 id"),
        (
            {"images": torch.zeros(0, 1, 4, 4), "labels": torch.zeros(0, dtype=torch.int64)},
            r"examples is empty.*\(0, 1, 4, 4\)",
        ),
    ],
)
def test_a_malformed_set_says_what_it_has(changes: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make(**changes)


def test_pixels_of_unknown_range_are_refused() -> None:
    with pytest.raises(InputError, match=r"mine has pixels of type torch\.int64.*uint8"):
        Examples.from_arrays(np.zeros((2, 4, 4), dtype=np.int64), [0, 1], name="mine")
    with pytest.raises(InputError, match="complex"):
        Examples.from_arrays(np.zeros((2, 4, 4), dtype=complex), [0, 1])


def test_digits_are_the_real_ones_in_the_unit_interval() -> None:
    digits = load_digits()
    assert digits.images.shape == (1797, 1, 8, 8)
    assert digits.images.min() == 0
    assert digits.images.max() == 1
    assert digits.labels[:10].tolist() == list(range(10))
    assert digits.labels.bincount().min() > 170
