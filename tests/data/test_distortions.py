"""Long tails, symmetric and asymmetric noise, labels from files, and the record of a distortion."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tomli_w
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_files import shared_path

from autodo.data import (
    CIFAR10_FLIPS,
    TRUSTED_SIZES,
    Distortion,
    asymmetric_noise,
    long_tail,
    read_labels,
    step_imbalance,
    stratified_split,
    symmetric_noise,
    uniform_noise,
)
from autodo.errors import InputError

quick = settings(max_examples=50, deadline=None)


def shuffled(counts: list[int], seed: int = 0) -> torch.Tensor:
    labels = np.repeat(np.arange(len(counts)), counts)
    return torch.from_numpy(np.random.default_rng(seed).permutation(labels))


# the long tail


@quick
@given(
    counts=st.lists(st.integers(20, 60), min_size=2, max_size=8),
    ratio=st.floats(1, 20),
    seed=st.integers(0, 9),
)
def test_a_long_tail_falls_exponentially(counts: list[int], ratio: float, seed: int) -> None:
    labels, classes = shuffled(counts), len(counts)
    kept = long_tail(labels, ratio, num_classes=classes, seed=seed)
    for c, n in enumerate(labels[kept].bincount(minlength=classes).tolist()):
        share = max(counts) * ratio ** (-c / (classes - 1))
        assert n == min(counts[c], int(share)) or n == min(counts[c], round(share))
    assert kept.tolist() == sorted(set(kept.tolist()))
    assert torch.equal(kept, long_tail(labels, ratio, num_classes=classes, seed=seed))


def test_a_long_tail_of_cifar_has_the_customary_sizes() -> None:
    labels = shuffled([5000] * 10)
    kept = labels[long_tail(labels, 100, num_classes=10, seed=0)]
    # CIFAR-10-LT with imbalance factor 100, as published since 2019: 12,406 images.
    assert kept.bincount().tolist() == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    other = labels[long_tail(labels, 100, num_classes=10, seed=1)]
    assert torch.equal(kept.bincount(), other.bincount())


def test_a_long_tail_that_empties_a_class_names_it() -> None:
    with pytest.raises(InputError, match=r"ratio 100 leaves no example of class 2.*at most 50"):
        long_tail(shuffled([50, 50, 50]), 100, num_classes=3, seed=0)
    kept = long_tail(
        shuffled([50, 0, 50]), 50, num_classes=3, seed=0
    )  # empty before: not its doing
    assert shuffled([50, 0, 50])[kept].bincount(minlength=3).tolist() == [50, 0, 1]


# noise


@quick
@given(
    counts=st.lists(st.integers(1, 40), min_size=2, max_size=8),
    rate=st.floats(0, 1),
    seed=st.integers(0, 9),
)
def test_symmetric_noise_makes_exactly_its_share_wrong(
    counts: list[int], rate: float, seed: int
) -> None:
    labels = shuffled(counts)
    noisy = symmetric_noise(labels, rate, num_classes=len(counts), seed=seed)
    assert int((noisy != labels).sum()) == round(rate * len(labels))
    assert noisy.min() >= 0
    assert noisy.max() < len(counts)
    assert torch.equal(noisy, symmetric_noise(labels, rate, num_classes=len(counts), seed=seed))


def test_symmetric_noise_is_uniform_over_the_other_classes() -> None:
    labels = torch.full((9000,), 4)
    counts = symmetric_noise(labels, 1.0, num_classes=10, seed=0).bincount(minlength=10)
    assert counts[4] == 0
    others = counts[counts > 0]
    assert len(others) == 9
    assert others.min() > 880  # 1,000 expected, deviation 30
    assert others.max() < 1120


@pytest.mark.parametrize(("flips", "classes"), [(None, 7), (CIFAR10_FLIPS, 10)])
@pytest.mark.parametrize("rate", [0, 0.3, 1])
def test_asymmetric_noise_goes_from_class_to_class(
    flips: dict[int, int] | None, classes: int, rate: float
) -> None:
    labels = shuffled(list(range(20, 20 + classes)))
    noisy = asymmetric_noise(labels, rate, num_classes=classes, seed=3, flips=flips)
    expected = {c: (c + 1) % classes for c in range(classes)} if flips is None else flips
    for c in range(classes):
        after = noisy[labels == c].bincount(minlength=classes)
        moved = round(rate * (20 + c)) if c in expected else 0
        assert after[c] == 20 + c - moved
        if moved:
            assert after[expected[c]] == moved


def test_the_flips_of_cifar10_are_the_customary_ones() -> None:
    names = [
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ]
    assert {(names[a], names[b]) for a, b in CIFAR10_FLIPS.items()} == {
        ("truck", "automobile"),
        ("bird", "airplane"),
        ("deer", "horse"),
        ("cat", "dog"),
        ("dog", "cat"),
    }


def test_noise_that_makes_no_sense_is_refused() -> None:
    labels = torch.zeros(4, dtype=torch.int64)
    with pytest.raises(InputError, match=r"flips of class 9"):
        asymmetric_noise(labels, 0.1, num_classes=4, seed=0, flips={0: 9})
    with pytest.raises(InputError, match="no other class"):
        symmetric_noise(labels, 0.5, num_classes=1, seed=0)
    for noise in (symmetric_noise, asymmetric_noise):
        with pytest.raises(InputError, match=r"rate of 1\.5"):
            noise(labels, 1.5, num_classes=4, seed=0)


# labels from files


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "2\n0\n1\n\n"),
        ("a.csv", "label\n2\n0\n1\n"),
        ("a.csv", "id,label\nx,2\ny,0\nz,1\n"),
        ("a.csv", 'id,title,y\n1,"a, b",2\n2,c,0\n3,d,1\n'),
    ],
)
def test_labels_are_read_from_text(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_labels(tmp_path / name).tolist() == [2, 0, 1]


def test_labels_are_read_from_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([2, 0, 1], dtype=np.uint8))
    assert read_labels(tmp_path / "a.npy").tolist() == [2, 0, 1]
    np.savez(tmp_path / "a.npz", clean_label=[0, 0, 0], worse_label=[2, 0, 1])
    assert read_labels(tmp_path / "a.npz", "worse_label").tolist() == [2, 0, 1]
    assert read_labels(tmp_path / "a.npz", "worse_label").dtype == torch.int64


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "a.txt",
            b"0\n1\ncat\n",
            r"1 of the 3 labels .*is no whole number, the first 'cat' for example 2",
        ),
        ("a.txt", b"0\ncat\ndog\n", r"2 of the 3 labels .*are no whole numbers, the first 'cat'"),
        ("a.csv", "label\nché\n".encode("latin-1"), r"a\.csv' cannot be read as text.*UTF-8"),
        ("a.csv", b"a,b\n0,1\n", r"2 columns that may be the label"),
        ("a.npz", b"PK", r"cannot be read"),
        ("a.xls", b"", r"\.npz, \.npy, \.csv and \.txt"),
    ],
)
def test_files_that_hold_no_labels(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_labels(tmp_path / name)


def test_a_missing_file_and_a_missing_key_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.npz' does not exist"):
        read_labels(tmp_path / "no.npz")
    np.savez(tmp_path / "a.npz", clean_label=[0], worse_label=[1])
    with pytest.raises(InputError, match=r"no label array 'worst_label'.*perhaps .*worse_label"):
        read_labels(tmp_path / "a.npz", "worst_label")
    with pytest.raises(InputError, match=r"2 arrays that may be the label"):
        read_labels(tmp_path / "a.npz")
    np.save(tmp_path / "a.npy", np.array([0.5]))
    with pytest.raises(InputError, match=r"floats such as 0\.5"):
        read_labels(tmp_path / "a.npy")


def test_real_labels_of_people_for_cifar10() -> None:
    path = shared_path("data", "cifar10n_labels.npz")
    clean, worse = (read_labels(path, f"{kind}_label") for kind in ("clean", "worse"))
    assert len(worse) == 50_000
    # CIFAR-10N states that 40.21% of its worst labels are wrong.
    assert round(100 * float((worse != clean).double().mean()), 2) == 40.21
    distortion = Distortion.parse(f"10-file:{path}#worse_label")
    rest, _ = stratified_split(clean, TRUSTED_SIZES["cifar10"], seed=0)
    kept, given = distortion.apply(clean[rest], 10, seed=0, positions=rest)
    assert torch.equal(given, worse[rest[kept]])
    assert len(kept) == 20_000 + 2_000


# the record


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("100-0.1", {"imbalance": 100, "noise": 0.1}),
        ("1-0.0", {}),
        ("10-0", {"imbalance": 10}),
        ("lt50-sym0.4", {"imbalance": 50, "imbalance_kind": "long-tail", "noise": 0.4,
                         "noise_kind": "symmetric"}),
        ("1-asym0.4", {"noise": 0.4, "noise_kind": "asymmetric"}),
        ("1-asym0.4:cifar10", {"noise": 0.4, "noise_kind": "asymmetric", "flips": "cifar10"}),
        ("2.5-file:a/b-c.npz#k", {"imbalance": 2.5, "labels": "a/b-c.npz", "labels_key": "k"}),
        ("1-file:labels.txt", {"labels": "labels.txt"}),
    ],
)  # fmt: skip
def test_a_distortion_survives_text_toml_and_json(text: str, same: dict) -> None:
    distortion = Distortion.parse(text)
    assert distortion == Distortion(**same)
    assert Distortion.parse(str(distortion)) == distortion
    for back in (
        tomllib.loads(tomli_w.dumps(distortion.to_dict())),
        json.loads(json.dumps(distortion.to_dict())),
    ):
        assert Distortion.from_dict(back) == distortion


def test_apply_is_the_functions_one_after_the_other() -> None:
    labels = shuffled([60] * 10)
    kept, noisy = Distortion.parse("10-0.3").apply(labels, 10, seed=5)
    assert torch.equal(kept, step_imbalance(labels, 10, num_classes=10, seed=5))
    assert torch.equal(noisy, uniform_noise(labels[kept], 0.3, num_classes=10, seed=5))
    kept, noisy = Distortion.parse("lt10-asym0.3:cifar10").apply(labels, 10, seed=5)
    assert torch.equal(kept, long_tail(labels, 10, num_classes=10, seed=5))
    flipped = asymmetric_noise(labels[kept], 0.3, num_classes=10, seed=5, flips=CIFAR10_FLIPS)
    assert torch.equal(noisy, flipped)
    kept, same = Distortion().apply(labels, 10, seed=5)
    assert torch.equal(kept, torch.arange(600))
    assert torch.equal(same, labels)


def test_labels_from_a_file_take_the_place_of_noise(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n1\n0\n0\n")
    labels = torch.tensor([0, 0, 1, 1])
    distortion = Distortion(labels=str(tmp_path / "a.txt"))
    assert distortion.apply(labels, 2, seed=0)[1].tolist() == [1, 1, 0, 0]
    part = distortion.apply(labels[1:3], 2, seed=0, positions=[1, 2])
    assert part[1].tolist() == [1, 0]
    with pytest.raises(InputError, match="has 4 labels for 3 examples"):
        distortion.apply(labels[:3], 2, seed=0)
    with pytest.raises(InputError, match="none for example 4"):
        distortion.apply(labels, 2, seed=0, positions=[0, 1, 2, 4])
    with pytest.raises(InputError, match=r"outside 0 \.\. 0"):
        Distortion(labels=str(tmp_path / "a.txt")).apply(torch.zeros(4).long(), 1, seed=0)


def test_an_imbalance_that_empties_a_class_is_refused() -> None:
    with pytest.raises(InputError, match="leaves no example of class"):
        Distortion(imbalance=100).apply(shuffled([30] * 4), 4, seed=0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("100", "no distortion"),
        ("100-", "no distortion"),
        ("-0.1", "no distortion"),
        ("a-b", "IMBALANCE-NOISE"),
        ("0.5-0", "ratio of 0.5"),
        ("1-1.5", "rate of 1.5"),
        ("1-asym0.4:svhn", "flips called 'svhn'"),
        ("1-sym0.4:cifar10", "flips with symmetric noise"),
        ("1-file:", "no distortion"),
    ],
)
def test_texts_that_are_no_distortion(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Distortion.parse(text)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"imbalance_kind": "steep"}, "an imbalance of kind 'steep'.*step, long-tail"),
        ({"noise_kind": "loud"}, "label noise of kind 'loud'"),
        ({"labels": "a.txt", "noise": 0.1}, "take the place of noise"),
        ({"nois": 0.1}, "has no nois"),
    ],
)
def test_records_that_are_no_distortion(fields: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Distortion.from_dict(fields)


# trusted sizes


def test_the_trusted_sizes_leave_what_the_paper_trains_on() -> None:
    assert 73_257 - TRUSTED_SIZES["svhn"] == 50_000
    assert TRUSTED_SIZES["cifar10"] == TRUSTED_SIZES["cifar100"] == 0.2 * 50_000
    assert TRUSTED_SIZES["imagenet"] == round(0.2 * 1_281_167)
