"""What policies draw: by seed, by the published figures, as often as they say."""

from __future__ import annotations

import pillow
import pytest
import torch
from torch import Generator, Tensor

from autodo import policies
from autodo.policies import RandAugment, TrivialAugment, autoaugment, randaugment, trivialaugment
from autodo.policies.operations import GEOMETRIC, NAMES, NEUTRAL, NUMBER, SIGNED, apply
from autodo.policies.subpolicies import Entry, SubPolicies

SPECS = [
    "none",
    "standard:svhn",
    "standard:cifar",
    "standard:imagenet",
    "randaugment:3,7",
    "randaugment:1,15,colour",
    "autoaugment:cifar",
    "autoaugment:svhn",
    "autoaugment:imagenet",
    "trivialaugment",
    "randaugment:2,9+trivialaugment+standard:cifar",
]
STEP_SPECS = [
    spec for spec in SPECS if spec.startswith(("rand", "auto", "triv")) if "+" not in spec
]


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def some_images(count: int = 16, channels: int = 3, size: tuple[int, int] = (32, 32)) -> Tensor:
    levels = torch.randint(256, (count, channels, *size), generator=seeded(99))
    return levels.float() / 255


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("channels", [1, 3])
def test_results_are_a_function_of_the_seed(spec, channels):
    policy, images = policies.get(spec), some_images(channels=channels)
    before = images.clone()
    first, again = policy(images, seeded(1)), policy(images, seeded(1))
    assert torch.equal(first, again)
    assert torch.equal(images, before)  # the caller's images are left alone
    if spec != "none":
        assert not torch.equal(first, policy(images, seeded(2)))


@pytest.mark.parametrize("spec", SPECS)
def test_results_are_images_in_the_unit_interval(spec):
    for count, channels, size in ((1, 3, (32, 32)), (5, 1, (11, 18)), (3, 3, (1, 1))):
        result = policies.get(spec)(some_images(count, channels, size), seeded())
        expected = (224, 224) if "imagenet" in spec and "standard" in spec else size
        assert result.shape == (count, channels, *expected)
        assert result.dtype == torch.float32
        assert result.min() >= 0
        assert result.max() <= 1


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec != "none"])
def test_successive_batches_differ(spec):
    policy, images, generator = policies.get(spec), some_images(), seeded()
    assert not torch.equal(policy(images, generator), policy(images, generator))


@pytest.mark.parametrize("spec", STEP_SPECS)
def test_a_whole_policy_is_the_one_of_pillow(spec):
    images = some_images(200)
    steps = policies.get(spec).draw(200, (32, 32), seeded(3))
    ours = (apply(images, steps) * 255).round().to(torch.uint8)
    assert torch.equal(ours, pillow.operate_all((images * 255).round().to(torch.uint8), steps))


@pytest.mark.parametrize("geometric", [True, False])
def test_randaugment_draws_every_operation_equally_often(geometric):
    policy = RandAugment(3, 9, geometric=geometric)
    steps = policy.draw(40_000, (32, 32), seeded(4))
    for step in range(3):
        counts = torch.bincount(steps.operation[:, step], minlength=len(NAMES)).double()
        drawn = counts[[NUMBER[name] for name in policy.operations]]
        assert drawn.sum() == 40_000  # and nothing else was drawn
        expected = 40_000 / len(drawn)
        chi_squared = ((drawn - expected) ** 2 / expected).sum().item()
        # The 99.9% quantile for 10 degrees of freedom; that for 5 is lower.
        assert chi_squared < (29.6 if geometric else 20.5)


def test_the_operations_of_a_randaugment_sequence_are_independent():
    steps = RandAugment(2, 9).draw(60_500, (32, 32), seeded(5))
    names = list(randaugment.RANGES)
    position = {NUMBER[name]: k for k, name in enumerate(names)}
    first, second = ([position[n] for n in column.tolist()] for column in steps.operation.T)
    pairs = torch.bincount(torch.tensor(first) * 11 + torch.tensor(second), minlength=121)
    assert ((pairs - 500.0) ** 2 / 500).sum() < 174  # 99.9% quantile for 120 degrees of freedom


def test_randaugment_values_fill_their_ranges_and_both_signs():
    steps = RandAugment(1, 15).draw(60_000, (32, 32), seeded(6))
    for name, (low, high) in randaugment.RANGES.items():
        values = steps.value[steps.operation == NUMBER[name]]
        reached = low + 15 / 30 * (high - low)
        size = values.abs()
        assert size.min() >= low
        assert size.max() <= reached
        if high > low:
            assert abs(size.mean().item() - (low + reached) / 2) < 0.02 * (reached - low)
            assert size.max() > low + 0.99 * (reached - low)
        if name in SIGNED:
            assert abs((values > 0).double().mean().item() - 0.5) < 0.03
        else:
            assert (values >= 0).all()


def test_the_colour_split_holds_exactly_the_operations_that_move_no_pixel():
    everything, colour = RandAugment(1, 1), RandAugment(1, 1, geometric=False)
    assert not set(colour.operations) & set(GEOMETRIC)
    assert set(colour.operations) | set(SIGNED) == set(everything.operations)


def test_randaugment_of_magnitude_zero_moves_nothing():
    images = some_images(200)
    steps = RandAugment(3, 0).draw(200, (32, 32), seeded(7))
    geometric = torch.isin(steps.operation, torch.tensor([NUMBER[name] for name in SIGNED]))
    steps = type(steps)(torch.where(geometric, steps.operation, 0), steps.value, steps.place)
    assert geometric.any()
    assert torch.equal(apply(images, steps), images)


def test_published_randaugment_figures():
    texts = {name: repr(policy) for name, policy in randaugment.PUBLISHED.items()}
    assert texts == {
        "svhn": "randaugment:3,7",
        "cifar": "randaugment:3,15",
        "imagenet": "randaugment:2,9",
    }
    texts = {name: repr(policy) for name, policy in randaugment.WITH_AUTODO.items()}
    assert texts == {
        "svhn": "randaugment:3,7,colour",
        "cifar": "randaugment:1,15,colour",
        "imagenet": "randaugment:2,9,colour",
    }


def test_trivialaugment_draws_31_strengths_of_14_operations():
    steps = TrivialAugment().draw(100_000, (40, 64), seeded(8))
    counts = torch.bincount(steps.operation[:, 0]).double()
    counts = counts[counts > 0]
    assert len(counts) == 14
    expected = 100_000 / 14
    assert ((counts - expected) ** 2 / expected).sum() < 34.6  # 99.9%, 13 degrees of freedom

    def values(name: str) -> Tensor:
        return steps.value[steps.operation == NUMBER[name]].unique()

    for name in ("Color", "Contrast", "Brightness", "Sharpness"):
        torch.testing.assert_close(values(name), torch.linspace(0.01, 2, 31, dtype=torch.float64))
    torch.testing.assert_close(values("ShearX"), torch.linspace(-0.99, 0.99, 61).double())
    assert values("Posterize").tolist() == [2, 3, 4, 5, 6, 7, 8]
    assert (values("Solarize").min(), values("Solarize").max()) == (0, 256)
    assert values("Rotate").abs().max() == 135
    # Pixels, whatever the size.
    torch.testing.assert_close(values("TranslateX") * 64, (values("TranslateX") * 64).round())
    assert values("TranslateX").max() * 64 == 32
    assert values("TranslateY").max() * 40 == 32
    assert set(trivialaugment.RANGES) == {NAMES[k] for k in steps.operation.unique().tolist()}


@pytest.mark.parametrize("name", ["cifar", "svhn", "imagenet"])
def test_autoaugment_has_25_pairs_with_values_in_the_published_ranges(name):
    policy = autoaugment.PUBLISHED[name]
    assert [len(pair) for pair in policy.subpolicies] == [2] * 25
    bounds = {"Posterize": (4, 8), "Solarize": (0, 255), "Rotate": (0, 30)}
    for entry in (entry for pair in policy.subpolicies for entry in pair):
        low, high = bounds.get(entry.operation, (0, autoaugment.STRONGEST.get(entry.operation, 0)))
        assert low <= entry.value <= high
        assert round(entry.probability * 10) / 10 == entry.probability


def test_autoaugment_magnitudes_are_evenly_spaced():
    entries = {entry for pair in autoaugment.PUBLISHED["cifar"].subpolicies for entry in pair}
    values = {(entry.operation, round(entry.value, 6)) for entry in entries}
    assert ("Contrast", round(1 + 0.9 * 6 / 9, 6)) in values
    assert ("Rotate", round(30 * 2 / 9, 6)) in values
    assert ("TranslateX", round(150 / 331, 6)) in values
    assert ("Posterize", 5.0) in values  # 8 - round(4 * 7 / 9)
    assert ("Solarize", round(255 * 7 / 9, 6)) in values


def test_subpolicies_are_drawn_uniformly_and_operations_by_their_probability():
    policy = SubPolicies(
        "mine",
        (
            (Entry("Rotate", 0.25, 10.0, True), Entry("Invert", 1.0, 0.0, False)),
            (Entry("Brightness", 0.5, 1.4, True),),
        ),
    )
    steps = policy.draw(40_000, (8, 8), seeded(9))
    first, second = steps.operation.T
    rotated, brightened = first == NUMBER["Rotate"], first == NUMBER["Brightness"]
    inverted = second == NUMBER["Invert"]
    assert abs(inverted.double().mean() - 0.5) < 0.01
    assert abs(rotated[inverted].double().mean() - 0.25) < 0.015
    assert not rotated[~inverted].any()
    assert abs(brightened[~inverted].double().mean() - 0.5) < 0.015
    assert steps.value[:, 0][rotated].unique().tolist() == [-10, 10]
    # The other side of a factor is as far from 1, not negative.
    assert steps.value[:, 0][brightened].unique().tolist() == pytest.approx([0.6, 1.4])


def test_operations_with_two_sides_know_the_value_between_them():
    for policy in autoaugment.PUBLISHED.values():
        for entry in (entry for pair in policy.subpolicies for entry in pair):
            assert not entry.signed or entry.operation in NEUTRAL
