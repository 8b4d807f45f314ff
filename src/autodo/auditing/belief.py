"""What is believed of every training point by heads that have not seen its label.

Two heads begin. One has learned from the trusted points alone; with few of them it knows little.
The other has learned from the given labels, out of fold; it knows the features well and repeats the
labels' mistakes. Their log-beliefs are added with the weights that serve the trusted points best,
which neither has seen (:func:`stack`). ``hyper.posterior`` makes labels of that, and heads
that learn from those labels and the trusted points, in the place of the other, believe better
(:func:`learn`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from autodo.auditing.heads import Heads, fit_heads, outside, split
from autodo.auditing.lbfgs import lbfgs
from autodo.data.randomness import generator_for
from autodo.hyper.posterior import LabelPosterior, label_posterior

L2_GRID = tuple(10.0**k for k in range(4, -3, -1))
CHOICE_POINTS = 2000
"""Points on which L2 is chosen, at the most."""
POSTERIOR_POINTS, PER_CLASS, LEAST_PER_CLASS, NUMBERS = 5000, 500, 100, 2**21
"""Points from which the noise is estimated, at the most: so many in all, or per class if that is
more; but of more than 64 classes not more than have so many beliefs, down to the least per class.
What noise from class to class gains grows with the points of a class."""
LARGEST_WEIGHT = 5.0
"""Of a belief in a stack; beliefs that are never wrong would get an infinite one."""
LARGEST_TEMPERATURE = 8.0
L2_FALLS = 10.0
"""By which factor L2 may fall where it is chosen for labels that heads made. These ask for ever
less, since heads foretell them whether or not they are right: where heads have more numbers than
points, a thousandth or less after two rounds, and labels get worse from round to round."""
CLOSE = 3e-3
"""Tolerance where points are so few that heads part them all: curvature then is far below usual."""
FOLDS, CHOICE, NOISE = range(3)
"""Purposes of random numbers: the second word of every derived seed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels:
    """What true class a belief and a given label point to: q ~ b^(1/tau) pi / pi0 T[:, y]."""

    noise: LabelPosterior | None
    """None where the belief tells nothing: the given labels stand."""
    log_transition: Tensor
    """log T: (C, C)."""
    log_ratio: Tensor
    """log pi / pi0: (C,)."""

    def __call__(self, log_belief: Tensor, given: Tensor) -> Tensor:
        """log q: (n, C), of beliefs (n, C) and given labels (n,)."""
        if self.noise is None:
            classes = log_belief.shape[1]
            return F.one_hot(given, classes).to(log_belief.dtype).clamp_min(1e-30).log()
        logits = log_belief / self.noise.temperature + self.log_ratio + self.log_transition.T[given]
        return F.log_softmax(logits, -1)


def estimate_labels(
    log_belief: Tensor,
    given: Tensor,
    trusted_shares: Tensor,
    generator: torch.Generator,
    *,
    least_temperature: float = 0.0,
    trusted: tuple[Tensor, Tensor] | None = None,
    before: Labels | None = None,
) -> Labels:
    """Estimate noise, temperature and class mix on some of the points, to be used on all.

    ``trusted``: beliefs of trusted points, which no head has seen, and their labels. ``before``:
    what an earlier belief said, which has a say in which kind of noise it is.
    """
    count, classes = log_belief.shape
    per_class = min(PER_CLASS * classes, NUMBERS // classes)
    limit = max(POSTERIOR_POINTS, per_class, LEAST_PER_CLASS * classes)
    some = torch.randperm(count, generator=generator)[:limit].to(given.device)
    noise = label_posterior(
        log_belief[some], given[some], trusted_shares,
        least_temperature=least_temperature, trusted=trusted,
        before=None if before is None or before.noise is None else before.noise.evidence,
    )  # fmt: skip
    if math.isinf(noise.temperature):
        nothing = torch.zeros(classes, device=log_belief.device)
        return Labels(noise=None, log_transition=nothing, log_ratio=nothing)
    return Labels(
        noise=replace(noise, labels=noise.labels[:0]),
        log_transition=noise.transition.log(),
        log_ratio=(noise.class_shares / trusted_shares).log(),
    )


def stack(beliefs: list[Tensor], labels: Tensor) -> Tensor:
    """(J,) weights a >= 0 for which softmax(sum_j a_j log b_j) fits the labels (n,) best.

    Of two beliefs (n, C), one right and one at random, the right one counts:

    >>> right = torch.tensor([[0.8, 0.2], [0.2, 0.8], [0.6, 0.4], [0.6, 0.4]]).log()
    >>> luck = torch.tensor([[0.3, 0.7], [0.3, 0.7], [0.7, 0.3], [0.7, 0.3]]).log()
    >>> stack([right, luck], torch.tensor([0, 1, 0, 1])) > 0.1
    tensor([ True, False])
    """
    logs = torch.stack(beliefs).double().cpu()
    right = F.one_hot(labels, logs.shape[-1]).double().cpu()

    def objective(a: np.ndarray) -> tuple[float, np.ndarray]:
        log_p = F.log_softmax(torch.einsum("j,jnc->nc", torch.from_numpy(a), logs), -1)
        gradient = torch.einsum("nc,jnc->j", log_p.exp() - right, logs)
        count = len(labels)
        return -float((right * log_p).sum()) / count, gradient.numpy() / count

    first = np.full(len(beliefs), 1 / len(beliefs))
    bounds = [(0.0, LARGEST_WEIGHT)] * len(beliefs)
    return torch.from_numpy(lbfgs(objective, first, bounds=bounds)).float()


@dataclass(frozen=True, kw_only=True, eq=False)
class Stacked:
    """Two beliefs as one: of heads on the trusted points alone and of heads on labels of train."""

    trusted: Heads
    heads: Heads
    weights: Tensor | None
    """(2,) of either's log-belief; None where the latter are believed alone."""

    def belief(self, features: Tensor, fold: Tensor) -> Tensor:
        """(n, C) log-probabilities of features (n, D); ``fold`` (n,) as in ``Heads.belief``."""
        rows = max(1, 2**22 // self.heads.bias.numel())
        parts = zip(features.split(rows), fold.split(rows), strict=True)
        return torch.cat([self._belief(*part) for part in parts])

    def _belief(self, features: Tensor, fold: Tensor) -> Tensor:
        other = self.heads.belief(features, fold)
        if self.weights is None:
            return other
        own = self.trusted.belief(features, torch.full_like(fold, -1))
        return F.log_softmax(self.weights[0] * own + self.weights[1] * other, -1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Learned:
    """The last beliefs, what was learned of the noise, and who has seen what."""

    stacked: Stacked
    labels: Labels
    l2: float
    """Of the heads on labels of train."""
    shift: Tensor
    """(C,) the logit adjustment under which the last of them were trained."""
    fold: Tensor
    """(n,) of each training point; head k has not seen fold k."""
    trusted_fold: Tensor

    @property
    def heads(self) -> Heads:
        """The last heads on labels of train."""
        return self.stacked.heads


def learn(
    features: Tensor,
    given: Tensor,
    trusted: Tensor,
    trusted_labels: Tensor,
    *,
    folds: int,
    rounds: int,
    seed: int,
    steady: bool = True,
    tell: Callable[[], object] = lambda: None,
) -> Learned:
    """Heads for features (n, D) with given labels (n,), from trusted (m, D), (m,).

    Both are standardised, on one device, and every class 0 .. C - 1 has a trusted point. ``tell``
    is called after each of the rounds + 2 fits.

    ``steady``: all rounds have the L2 of the given labels, and the trusted points' head keeps its
    say. Else L2 is chosen for the labels of each round, and its heads are believed alone: better
    for the folds of a training, whose features have been learned (docs/results.md).
    """
    shares = torch.bincount(trusted_labels) + 1.0
    shares /= shares.sum()
    classes = len(shares)
    generator = generator_for(seed, FOLDS)
    fold = split(len(given), folds, generator, given.cpu()).to(given.device)
    trusted_fold = split(len(trusted), folds, generator, trusted_labels.cpu()).to(given.device)
    right = F.one_hot(trusted_labels, classes).float()

    choices = generator_for(seed, CHOICE)
    # Fold k of the trusted points is judged by the head without it, train by the mean of all.
    l2 = choose_l2(trusted, right, trusted_fold, choices)
    one = fit_heads(trusted, right, outside(trusted_fold, folds), l2=l2, tolerance=CLOSE)
    tell()
    own = one.belief(trusted, trusted_fold)

    def judged(heads: Heads, *, alone: bool = False) -> tuple[Stacked, Tensor]:
        """The belief of heads, and what it says of the trusted points (m, C)."""
        other = heads.belief(trusted, trusted_fold)
        if alone:
            return Stacked(trusted=one, heads=heads, weights=None), other
        weights = stack([own, other], trusted_labels)
        both = Stacked(trusted=one, heads=heads, weights=weights)
        return both, weights[0] * own + weights[1] * other

    points, folds_of = torch.cat([features, trusted]), torch.cat([fold, trusted_fold])
    seen = outside(folds_of, folds)
    soft = torch.cat([F.one_hot(given, classes).float(), right])
    shift = _shift(soft, shares)
    l2 = of_given = choose_l2(points, soft, folds_of, choices, shift)
    heads = fit_heads(points, soft, seen, l2=l2, shift=shift)
    tell()
    both, of_trusted = judged(heads)
    belief = both.belief(features, fold)
    generator = generator_for(seed, NOISE)
    labels = estimate_labels(belief, given, shares, generator, trusted=(of_trusted, trusted_labels))

    for _ in range(rounds):
        soft = torch.cat([labels(belief, given).exp(), right])
        shift = _shift(soft, shares)
        if not steady:
            l2 = choose_l2(points, soft, folds_of, choices, shift, least=of_given / L2_FALLS)
        heads = fit_heads(points, soft, seen, l2=l2, shift=shift, start=heads)
        both, of_trusted = judged(heads, alone=not steady)
        belief = both.belief(features, fold)
        labels = estimate_labels(
            belief, given, shares, generator, trusted=(of_trusted, trusted_labels), before=labels,
            least_temperature=_temperature(of_trusted, trusted_labels),
        )  # fmt: skip
        tell()
    return Learned(
        stacked=replace(both, trusted=one.mean()),
        labels=labels,
        l2=l2,
        shift=shift,
        fold=fold,
        trusted_fold=trusted_fold,
    )


def choose_l2(
    features: Tensor,
    labels: Tensor,
    fold: Tensor,
    generator: torch.Generator,
    shift: Tensor | None = None,
    *,
    least: float = 0.0,
) -> float:
    """The L2 of the grid whose heads, out of fold, give the labels (n, C) the best likelihood.

    It is not below ``least``. An L2 beside a sum over points is a belief about heads, so that of a
    few points serves many.
    """
    some = torch.randperm(len(labels), generator=generator)[:CHOICE_POINTS].to(labels.device)
    features, labels, fold = features[some], labels[some], fold[some]
    if len(features) < features.shape[1]:
        # Heads lie in the span of the points, where the penalty is the same: fewer numbers.
        features = features @ torch.linalg.svd(features, full_matrices=False).Vh.T
    seen = outside(fold, int(fold.max()) + 1)
    heads, best, lowest = None, L2_GRID[0], math.inf
    for l2 in (l2 for l2 in L2_GRID if l2 >= least):
        heads = fit_heads(features, labels, seen, l2=l2, shift=shift, start=heads, tolerance=CLOSE)
        log_p = heads.belief(features, fold) + (0.0 if shift is None else shift)
        loss = -float((labels * F.log_softmax(log_p, -1)).sum())
        if loss > lowest:  # it has one valley, and heads with less L2 take ever longer
            break
        best, lowest = l2, loss
    return best


def _temperature(log_belief: Tensor, labels: Tensor) -> float:
    """The temperature at which a belief (n, C) fits labels (n,) that are right best."""
    return 1 / max(float(stack([log_belief], labels)[0]), 1 / LARGEST_TEMPERATURE)


def _shift(labels: Tensor, trusted_shares: Tensor) -> Tensor:
    """log(share in training / share in trusted) of each class."""
    return (labels.mean(0).clamp_min(1e-6) / trusted_shares).log()
