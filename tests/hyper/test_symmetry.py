"""Symmetries: every way to see an image, all equally often, and when a network may be believed."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch

from autodo.errors import InputError
from autodo.hyper.dataset_model import DatasetModel
from autodo.hyper.symmetry import (
    AS_WELL,
    CHANGES,
    SYMMETRIES,
    Recognition,
    draw,
    is_enough,
    is_too_much,
    recognition,
    turned,
)

IMAGE = torch.arange(9).reshape(1, 1, 3, 3)


def ways(level: int) -> set[tuple[int, ...]]:
    """All that can become of an image, as its pixels."""
    drawn = itertools.product([False, True], repeat=level)
    return {tuple(turned(IMAGE, torch.tensor(d)[:, None]).flatten().tolist()) for d in drawn}


@pytest.mark.parametrize(("level", "count"), [(1, 2), (2, 4), (3, 8)])
def test_each_symmetry_is_all_its_ways_to_see_an_image(level: int, count: int) -> None:
    mirrored = (IMAGE, IMAGE.flip(-1))
    turns = {1: (0,), 2: (0, 2), 3: (0, 1, 2, 3)}[level]
    true = {tuple(x.rot90(k, (-2, -1)).flatten().tolist()) for x in mirrored for k in turns}
    assert ways(level) == true
    assert len(true) == count


def test_images_get_what_is_drawn_for_them_and_nothing_else() -> None:
    images = torch.rand(4, 2, 5, 5)
    drawn = torch.tensor([[False, True, False, True], [False, False, True, True]])
    got = turned(images, drawn)
    assert torch.equal(got[0], images[0])
    assert torch.equal(got[1], images[1].flip(-1))
    assert torch.equal(got[2], images[2].flip(-2))
    assert torch.equal(got[3], images[3].flip(-1, -2))


def test_ways_are_equally_likely_and_repeat_by_the_generator() -> None:
    drawn, again = (
        draw(8000, (8, 8), 3, torch.Generator().manual_seed(1)).long() for _ in range(2)
    )
    assert torch.equal(drawn, again)
    shares = torch.bincount(drawn[0] + 2 * drawn[1] + 4 * drawn[2], minlength=8) / 8000
    assert float((shares - 1 / 8).abs().max()) < 5 * (1 / 8 * 7 / 8 / 8000) ** 0.5


def test_what_is_not_square_is_not_turned_by_quarters() -> None:
    drawn = draw(3, (4, 6), SYMMETRIES.index("turns"), None)
    assert drawn.shape == (2, 3)
    assert turned(torch.rand(3, 1, 4, 6), drawn).shape == (3, 1, 4, 6)


def test_without_a_symmetry_nothing_is_drawn() -> None:
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert draw(5, (4, 4), 0, generator).shape == (0, 5)
    assert torch.equal(generator.get_state(), before)
    assert len(SYMMETRIES) == len(CHANGES) + 1


def test_a_symmetry_that_there_is_not_is_refused() -> None:
    with pytest.raises(InputError, match=r"no symmetry 'rotate'.*none, mirror, flips, turns"):
        DatasetModel(torch.tensor([0, 1]), num_classes=2, symmetry="rotate")


def test_a_dataset_turns_images_before_it_warps_them() -> None:
    data = DatasetModel(torch.arange(40) % 2, num_classes=2, augment="affine", symmetry="mirror")
    gates = slice(data.table("augment").rows.shape[1] // 2, None)
    data.table("augment").rows[:, gates] = -40.0  # none opens
    images = torch.rand(40, 1, 6, 6)
    seen = data.augment(images, torch.arange(40), torch.Generator().manual_seed(0))
    for x, was in zip(seen, images, strict=True):
        assert min(float((x - way).abs().max()) for way in (was, was.flip(-1))) < 1e-5
    assert not torch.allclose(seen, images, atol=1e-3)
    noise = data.noise(40, torch.Generator().manual_seed(0))
    torch.testing.assert_close(data.augment(images, torch.arange(40), noise=noise), images)


def recognised(share: float, count: int, classes: int, seed: int) -> tuple[torch.Tensor, ...]:
    """Labels, and what a network takes images for that is right about ``share`` of them."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    other = (labels + 1 + torch.randint(classes - 1, (count,), generator=generator)) % classes
    right = torch.rand(count, generator=generator) < share
    return labels, torch.where(right, labels, other)


@pytest.mark.parametrize(("share", "enough"), [(0.79, True), (0.5, False), (0.7, False)])
def test_it_must_be_recognised_nearly_as_well(share: float, enough: bool) -> None:
    labels, before = recognised(0.8, 5000, 10, 0)
    after = recognised(share, 5000, 10, 1)[1]
    found = recognition(before, after, labels, 10)
    assert found.share == pytest.approx((share - 0.1) / 0.7, abs=0.03)
    assert is_enough([found]) is enough
    assert is_too_much(found) is not enough


def test_wrong_labels_do_not_hide_it() -> None:
    """With four labels in ten drawn at random a network is right about fewer of them."""
    true, before = recognised(0.8, 5000, 10, 0)
    generator = torch.Generator().manual_seed(2)
    drawn = torch.randint(10, true.shape, generator=generator)
    given = torch.where(torch.rand(5000, generator=generator) < 0.4, drawn, true)
    agrees = torch.rand(5000, generator=generator) < 0.97
    after = torch.where(agrees, before, (before + 1) % 10)
    assert is_enough([recognition(before, after, given, 10)])


def test_a_network_that_recognises_nothing_is_not_believed() -> None:
    labels = torch.cat([torch.zeros(4000), torch.arange(1, 10).repeat(20)]).long()
    constant = torch.zeros_like(labels)
    found = recognition(constant, constant, labels, 10)
    assert found.share == 0
    assert not is_enough([found])
    guesses = [
        recognition(recognised(0.1, 200, 10, s)[1], recognised(0.1, 200, 10, s + 50)[1], true, 10)
        for s in range(50)
        for true in [torch.arange(200) % 10]
    ]
    assert sum(is_enough([found]) for found in guesses) <= 5
    assert not is_enough(guesses)


def test_few_images_do_not_suffice() -> None:
    labels = torch.arange(10) % 2
    wrong_once = labels.clone()
    wrong_once[0] = 1
    assert not is_enough([recognition(labels, wrong_once, labels, 2)])


def test_classes_of_one_image_vary_as_all_images_do() -> None:
    """Each alone seems not to vary at all, and the share would pass for known exactly."""
    labels = torch.arange(100)
    after = torch.where(labels % 10 < 9, labels, (labels + 1) % 100)
    found = recognition(labels, after, labels, 100)
    assert found.share == pytest.approx(0.9, abs=0.01)
    assert found.error == pytest.approx(0.03, abs=0.005)  # sqrt(0.9 * 0.1 / 100)
    assert not is_enough([found])


def test_one_image_tells_nothing_and_raises_no_warning() -> None:
    one = torch.tensor([1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = recognition(one, one, one, 3)
    assert (found.share, found.error, found.lost) == (0.0, 0.0, False)


def test_a_single_class_that_is_lost_is_enough_to_refuse() -> None:
    labels = torch.arange(4000) % 40
    after = torch.where(labels == 7, 8, labels)
    found = recognition(labels, after, labels, 40)
    assert found.share > AS_WELL
    assert is_too_much(found)
    assert not is_enough([found])


def rare_and_common(seed: int) -> tuple[torch.Tensor, ...]:
    """Labels of five common and five rare classes, what a network takes images for, and the same
    after a change by which it is right about others, and not fewer of them."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.arange(5).repeat(2500), torch.arange(5, 10).repeat(30)])
    other = (labels + 1 + torch.randint(9, labels.shape, generator=generator)) % 10
    share = torch.where(labels < 5, 0.75, 0.4)
    first, second, again = torch.rand((3, len(labels)), generator=generator)
    drawn = first, torch.where(again < 0.6, first, second)
    return labels, *(torch.where(one < share, labels, other) for one in drawn)


def test_a_few_images_of_rare_classes_do_not_hide_it() -> None:
    found = []
    for seed in range(20):
        labels, before, after = rare_and_common(seed)
        found.append(recognition(before, after, labels, 10))
    assert sum(map(is_enough, zip(found[::2], found[1::2], strict=True))) == 10


def test_networks_that_are_not_sure_alone_may_be_together() -> None:
    unsure = Recognition(share=0.96, error=0.04, lost=False)
    assert not is_enough([unsure])
    assert not is_too_much(unsure)
    assert is_enough([unsure] * 4)
    assert not is_enough([unsure] * 4 + [Recognition(share=0.96, error=0.04, lost=True)])
