"""The label posterior on data drawn from its own model, where the truth is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from autodo.hyper.posterior import (
    BY_CLASS,
    MANY,
    NONE,
    SHRINKAGE,
    TEMPERATURES,
    _confusion,
    _fit,
    label_posterior,
)
from autodo.hyper.posterior import UNIFORM as BY_UNIFORM

CLASSES, POINTS = 5, 4000
UNIFORM = torch.full((CLASSES,), 1 / CLASSES)


def sample(
    transition: Tensor, shares: Tensor = UNIFORM, sharpness: float = 4.0, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """True classes, calibrated log-beliefs under a uniform prior, given labels."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.multinomial(shares, POINTS, replacement=True, generator=generator)
    # Evidence for each class: normal around `sharpness` for the true one and 0 for the others, with
    # the variance that makes softmax of it the exact posterior under a uniform prior.
    noise = torch.randn(POINTS, CLASSES, generator=generator) * sharpness**0.5
    evidence = noise + sharpness * torch.nn.functional.one_hot(true, CLASSES)
    given = torch.multinomial(transition[true], 1, generator=generator)[:, 0]
    return true, evidence.log_softmax(-1), given


def uniform_noise(rate: float) -> Tensor:
    return (1 - rate) * torch.eye(CLASSES) + rate / CLASSES


def pair_noise(rate: float) -> Tensor:
    return (1 - rate) * torch.eye(CLASSES) + rate * torch.eye(CLASSES).roll(1, 1)


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5])
def test_it_finds_the_noise_rate(rate: float) -> None:
    _, belief, given = sample(uniform_noise(rate))
    assert label_posterior(belief, given, UNIFORM).noise_rate == pytest.approx(rate, abs=0.03)


def test_it_finds_the_class_shares_of_a_skewed_set() -> None:
    shares = torch.tensor([0.5, 0.3, 0.15, 0.04, 0.01])
    _, belief, given = sample(uniform_noise(0.2), shares)
    found = label_posterior(belief, given, UNIFORM).class_shares
    torch.testing.assert_close(found, shares, atol=0.015, rtol=0)


@pytest.mark.parametrize("make", [uniform_noise, pair_noise])
def test_its_labels_beat_both_the_given_ones_and_the_belief(make) -> None:  # type: ignore[no-untyped-def]
    true, belief, given = sample(make(0.3))
    labels = label_posterior(belief, given, UNIFORM).labels.argmax(-1)
    right = (labels == true).float().mean()
    assert right > (given == true).float().mean() + 0.05
    assert right > (belief.argmax(-1) == true).float().mean() + 0.01


def test_a_class_confusion_is_learned_beyond_uniform_noise() -> None:
    """Where class 0 is labelled 1 half the time, a given 1 is doubted and a given 0 is not."""
    transition = torch.eye(CLASSES)
    transition[0, :2] = 0.5
    true, belief, given = sample(transition, sharpness=2.0)
    posterior = label_posterior(belief, given, UNIFORM)
    q = posterior.labels
    assert posterior.transition[0, 1] > 0.35
    assert posterior.transition[1:].diagonal(1).min() > 0.9
    score = q.gather(-1, given[:, None])[:, 0]
    assert score[given == 0].mean() > 0.94  # 0.948 was measured
    assert score[(given == 1) & (true == 0)].mean() < score[(given == 1) & (true == 1)].mean() - 0.2


def test_clean_labels_are_left_alone() -> None:
    _, belief, given = sample(uniform_noise(0.0), sharpness=2.0)
    posterior = label_posterior(belief, given, UNIFORM)
    assert (posterior.labels.argmax(-1) != given).float().mean() < 0.01
    assert posterior.noise_rate < 0.02


def test_the_given_labels_stand_where_the_belief_knows_nothing() -> None:
    generator = torch.Generator().manual_seed(1)
    given = torch.randint(CLASSES, (POINTS,), generator=generator)
    nonsense = (3 * torch.randn(POINTS, CLASSES, generator=generator)).log_softmax(-1)
    posterior = label_posterior(nonsense, given, UNIFORM)
    assert posterior.temperature == math.inf
    assert torch.equal(posterior.labels.argmax(-1), given)


def test_a_weak_belief_is_used_under_heavy_noise() -> None:
    true, belief, given = sample(uniform_noise(0.8), sharpness=2.0)
    labels = label_posterior(belief, given, UNIFORM).labels.argmax(-1)
    assert (labels == true).float().mean() > (belief.argmax(-1) == true).float().mean()


def test_an_overconfident_belief_is_given_its_temperature_back() -> None:
    _, belief, given = sample(uniform_noise(0.3))
    posterior = label_posterior((belief * 4).log_softmax(-1), given, UNIFORM)
    assert 2.8 <= posterior.temperature <= 5.6


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("rate", [0.0, 0.6, 0.8])
def test_no_other_temperature_is_likelier(rate: float, scale: float) -> None:
    _, belief, given = sample(uniform_noise(rate), sharpness=2.0)
    belief = (belief * scale).log_softmax(-1)
    posterior = label_posterior(belief, given, UNIFORM)
    others = [
        _fit((belief / tau).log_softmax(-1), given, UNIFORM, tau, posterior.kind, 30)
        for tau in TEMPERATURES
    ]
    assert posterior.log_likelihood >= max(other.log_likelihood for other in others)


@pytest.mark.parametrize("scale", [0.75, 0.84, 1.19, 1.3, 3.4])
def test_a_temperature_between_two_steps_does_not_pass_for_noise(scale: float) -> None:
    """At the next lower step belief is too sure, and a little noise would make up for it."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20000, CLASSES, generator=generator)
    given = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
    posterior = label_posterior((logits * scale).log_softmax(-1), given, UNIFORM)
    assert posterior.kind == NONE
    assert posterior.temperature == pytest.approx(scale, rel=0.1)
    assert torch.equal(posterior.labels.argmax(-1), given)


def test_rows_are_distributions_and_the_result_is_the_same_twice() -> None:
    _, belief, given = sample(uniform_noise(0.2))
    one, two = (label_posterior(belief, given, UNIFORM) for _ in range(2))
    torch.testing.assert_close(one.labels.sum(-1), torch.ones(POINTS))
    assert torch.equal(one.labels, two.labels)


def test_infinite_certainty_and_absent_classes_stay_finite() -> None:
    belief = torch.full((4, 3), -200.0)
    belief[:, 0] = 0.0
    posterior = label_posterior(belief, torch.tensor([0, 0, 1, 0]), torch.ones(3) / 3)
    assert posterior.labels.isfinite().all()


@pytest.mark.parametrize(
    ("transition", "kind"),
    [(uniform_noise(0.0), NONE), (uniform_noise(0.2), BY_UNIFORM), (pair_noise(0.2), BY_CLASS)],
    ids=["nothing wrong", "uniform", "next class"],
)
@pytest.mark.parametrize("seed", range(3))
def test_the_simplest_noise_that_explains_the_labels_is_taken(
    transition: Tensor, kind: str, seed: int
) -> None:
    _, belief, given = sample(transition, seed=seed)
    assert label_posterior(belief, given, UNIFORM).kind == kind


def many_classes(kind: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Beliefs of fifty points of each of a hundred classes, given and true labels.

    Two in five are drawn at random, or one in five is the next class, of which a network has
    learned a tenth.
    """
    classes, count = 100, 5000
    generator = torch.Generator().manual_seed(seed)
    clear = (8 * torch.randn(count, classes, generator=generator)).softmax(-1)
    true = torch.multinomial(clear, 1, generator=generator)[:, 0]
    drawn = torch.randint(classes, (count,), generator=generator)
    other, rate = {
        NONE: (true, 0.0),
        BY_UNIFORM: (drawn, 0.4),
        BY_CLASS: ((true + 1) % classes, 0.2),
    }[kind]
    given = torch.where(torch.rand(count, generator=generator) < rate, other, true)
    learned = 0.02 if kind == BY_CLASS else 0.0
    belief = (1 - learned) * clear + learned * clear.roll(1, -1) + 1e-4
    return belief.log().log_softmax(-1), given, true


@pytest.mark.parametrize("kind", [NONE, BY_UNIFORM, BY_CLASS])
@pytest.mark.parametrize("seed", range(2))
def test_noise_is_told_among_many_classes_with_few_points(kind: str, seed: int) -> None:
    """T has two numbers for each point, which gain much where labels are merely drawn."""
    belief, given, true = many_classes(kind, seed)
    made = label_posterior(belief, given, torch.full((100,), 0.01))
    assert made.kind == kind
    if kind != NONE:
        right = (made.labels.argmax(-1) == true).float().mean()
        assert right > (given == true).float().mean() + 0.05


def test_chance_is_what_noise_from_class_to_class_gains_by_knowing_each_label() -> None:
    """Beside T estimated anew without each point, from beliefs that are sure."""
    generator = torch.Generator().manual_seed(0)
    true = torch.arange(3).repeat(10)
    given = torch.where(torch.rand(30, generator=generator) < 0.3, (true + 1) % 3, true)
    belief = torch.full((30, 3), -60.0)
    belief[torch.arange(30), true] = 0.0
    shares = torch.full((3,), 1 / 3)
    fit = _fit(belief, given, shares, 1.0, BY_CLASS, 30)
    uniform = _fit(belief, given, shares, 1.0, BY_UNIFORM, 30).transition
    gain = 0.0
    for k in range(30):
        same = (true == true[k]) & (torch.arange(30) != k)
        counts = SHRINKAGE * uniform[true[k], given[k]] + (given[same] == given[k]).sum()
        without = float(counts) / (SHRINKAGE + int(same.sum()))
        gain += float(fit.transition[true[k], given[k]].log()) - math.log(without)
    assert fit.chance == pytest.approx(gain / 30, rel=1e-4)


def test_a_belief_that_mistakes_a_rare_class_does_not_take_its_labels() -> None:
    """Of 4,000 right labels five are of a class that the belief takes for its neighbour."""
    _, belief, given = sample(uniform_noise(0.0), torch.tensor([0.4, 0.3, 0.3, 1e-9, 1e-9]))
    rare = torch.full((5,), 4)
    mistaken = torch.tensor([[-9.0, -9.0, -0.05, -9.0, -3.0]]).repeat(5, 1).log_softmax(-1)
    posterior = label_posterior(torch.cat([belief, mistaken]), torch.cat([given, rare]), UNIFORM)
    assert posterior.kind == NONE
    assert (posterior.labels[-5:].argmax(-1) == 4).all()


def test_where_there_is_no_noise_to_speak_of_what_is_least_believed_still_ranks_last() -> None:
    true, belief, given = sample(uniform_noise(0.0))
    wrong = torch.arange(3)
    given[wrong] = (true[wrong] + 1) % CLASSES
    posterior = label_posterior(belief, given, UNIFORM)
    doubt = 1 - posterior.labels.gather(-1, given[:, None])[:, 0]
    assert (posterior.labels.argmax(-1) != given).float().mean() < 0.01
    assert (doubt[wrong, None] > doubt[3:]).float().mean() > 0.95


def few_points(wrong: float, seed: int) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Beliefs of 100 points of four classes, labels given and true; 50 trusted points."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(count: int) -> tuple[Tensor, Tensor]:
        true = torch.randint(4, (count,), generator=generator)
        logits = torch.randn(count, 4, generator=generator)
        logits[torch.arange(count), true] += 3
        return logits.log_softmax(-1), true

    belief, true = drawn(100)
    given, some = true.clone(), round(100 * wrong)
    given[:some] = torch.randint(4, (some,), generator=generator)
    return belief, given, true, drawn(50)


def test_few_points_and_trusted_ones_show_noise_together() -> None:
    """Alone, an unsure belief explains wrong labels; trusted points say how sure it is."""
    shares, found = torch.full((4,), 0.25), {False: 0, True: 0}
    count = 0
    for seed in range(10):
        belief, given, true, trusted = few_points(0.4, seed)
        wrong = given != true
        count += int(wrong.sum())
        for told in found:
            made = label_posterior(belief, given, shares, trusted=trusted if told else None)
            found[told] += int((made.labels.argmax(-1) == true)[wrong].sum())
    assert found[True] > found[False] + 0.3 * count
    assert found[True] > 0.8 * count


def test_trusted_points_bring_no_noise_to_where_there_is_none() -> None:
    for seed in range(10):
        belief, given, _, trusted = few_points(0.0, seed)
        made = label_posterior(belief, given, torch.full((4,), 0.25), trusted=trusted)
        assert made.kind == NONE
        assert int((made.labels.argmax(-1) != given).sum()) <= 1


def foretold(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Beliefs of points of four classes, given and true labels.

    Four labels in ten were drawn at random, and a network has learned that they are.
    """
    generator = torch.Generator().manual_seed(seed)
    clear = (4 * torch.randn(count, 4, generator=generator)).softmax(-1)
    true = torch.multinomial(clear, 1, generator=generator)[:, 0]
    drawn = torch.randint(4, (count,), generator=generator)
    given = torch.where(torch.rand(count, generator=generator) < 0.4, drawn, true)
    belief = (0.6 * clear + 0.1).log() + 0.1 * torch.randn(count, 4, generator=generator)
    return belief.log_softmax(-1), given, true


@pytest.mark.parametrize("count", [50, 1000])
def test_trusted_points_show_noise_that_a_belief_foretells(count: int) -> None:
    shares = torch.full((4,), 0.25)
    belief, given, true = foretold(4000, 0)
    of_trusted, _, labels = foretold(count, 1)
    wrong = given != true
    alone = label_posterior(belief, given, shares)
    assert alone.kind == NONE
    told = label_posterior(belief, given, shares, trusted=(of_trusted, labels))
    found = told.labels.argmax(-1)
    assert told.noise_rate == pytest.approx(0.4, abs=0.12)
    assert float((found == true)[wrong].float().mean()) > 0.6
    assert float((found != true)[~wrong].float().mean()) < 0.05


def test_many_right_labels_stay_whatever_few_trusted_points_say() -> None:
    """Twenty trusted points whose labels a belief meets better or worse than it should."""
    shares = torch.full((4,), 0.25)
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(4000, 4, generator=generator)
    true = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
    belief = logits.log_softmax(-1)
    for seed in range(10):
        some = torch.randperm(4000, generator=torch.Generator().manual_seed(seed))[:20]
        made = label_posterior(belief, true, shares, trusted=(belief[some], true[some]))
        changed = float((made.labels.argmax(-1) != true).float().mean())
        assert changed < 0.005


TEN = 10


def next_class(count: int, seed: int, learned: float) -> tuple[Tensor, Tensor, Tensor]:
    """Beliefs of points, given and true labels, of which three in ten are the next class.

    ``learned``: how much of that a network has learned.
    """
    generator = torch.Generator().manual_seed(seed)
    clear = (6 * torch.randn(count, TEN, generator=generator)).softmax(-1)
    true = torch.multinomial(clear, 1, generator=generator)[:, 0]
    moved = torch.rand(count, generator=generator) < 0.3
    given = torch.where(moved, (true + 1) % TEN, true)
    belief = (1 - 0.3 * learned) * clear + 0.3 * learned * clear.roll(1, -1) + 1e-3
    noise = 0.2 * torch.randn(count, TEN, generator=generator)
    return (belief.log() + noise).log_softmax(-1), given, true


@pytest.mark.parametrize("seed", range(4))
def test_noise_that_one_belief_has_shown_is_not_none_to_the_next(seed: int) -> None:
    """A belief that has learned a twentieth of the noise explains few labels as well without it."""
    shares = torch.full((TEN,), 1 / TEN)

    def seen(learned: float) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        of_trusted, _, labels = next_class(25, seed + 50, learned)
        return next_class(300, seed, learned)[0], (of_trusted, labels)

    _, given, true = next_class(300, seed, 0.0)
    (first, at_first), (belief, trusted) = seen(0.0), seen(0.05)
    shown = label_posterior(first, given, shares, trusted=at_first)
    assert shown.kind == BY_CLASS
    alone = label_posterior(belief, given, shares, trusted=trusted)
    assert alone.kind == NONE
    both = label_posterior(belief, given, shares, trusted=trusted, before=shown.evidence)
    assert both.kind == BY_CLASS
    assert both.evidence[NONE] == pytest.approx(shown.evidence[NONE] + alone.evidence[NONE])
    assert float((both.labels.argmax(-1) == true).float().mean()) > 0.9


@pytest.mark.parametrize("classes", [3, MANY + 7])
def test_what_was_given_as_what_is_summed_alike_for_few_and_many_classes(classes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.rand(500, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (500,), generator=generator)
    expected = torch.zeros(classes, classes, dtype=torch.float64)
    for row, y in zip(q, labels, strict=True):
        expected[:, y] += row
    torch.testing.assert_close(_confusion(labels, q)(q), expected)
