"""What a label probably is, given what a network believes that has never seen it.

A network that has not seen training point i believes b_i(c) of it. True
classes are drawn with shares pi, and class c is labelled y with probability T[c, y]. Then

    P(true = c | belief, given = y)  ~  b_i(c)^(1/tau) pi_c / pi0_c T[c, y]

with pi0 the trusted shares. pi and T come from expectation maximisation, the belief's temperature
tau from the likelihood of the given labels. T is the simplest of three that explains these labels:
no noise to speak of, uniform noise of rate eps, or noise from class to class, shrunk towards the
uniform. With T free from the start, what a belief mistakes in rare classes passes for noise, and
their labels are lost where nothing is wrong. So it must gain more than its numbers do by chance,
or, where classes are many, foretell each label by the others. A belief that tells nothing of the
given labels cannot be told from labels that are all wrong; then the given labels stand, unless
trusted points say that the belief is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

TEMPERATURES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)
FINER = (2**0.25, 2**0.125)
"""Steps around the best of them: half and a quarter of theirs."""
KINDS = NONE, UNIFORM, BY_CLASS = "none", "uniform", "by class"
SHRINKAGE = 50.0
"""Points per class that the uniform-noise model counts as in the estimate of T."""
GIVEN_COUNT_AS = 500
"""Points as which given labels count, at the most, beside trusted ones. Their likelihood is that of
a model, in which noise is a matter of classes; people err where a network is unsure too."""
DEVIATIONS = 6.0
"""Beyond what class-to-class noise gains by chance, whichever way that is told. On digits, SVHN and
CIFAR-10 uniform noise and rare classes that a belief mistakes gained less than that, next-class
noise 1.3 times or more."""
MANY = 128
"""Classes, from which on points are summed up by their label and not by a product with all."""
MISTAKES = 0.03
"""Nats a point that class-to-class noise must gain by the other labels. A belief that mistakes
classes gains some where no label is wrong: 0.007 to 0.018 were seen in pixels and glosses, of which
linear heads know little; noise of the next class among a hundred gained 0.047 and more."""


@dataclass(frozen=True, kw_only=True)
class LabelPosterior:
    """q of every point and the noise model it came from."""

    labels: Tensor
    """q: (N, C)."""
    kind: str
    """Of the noise: NONE, UNIFORM or BY_CLASS."""
    noise_rate: float
    """eps: the share of points whose label was drawn at random, were the noise uniform; 0 only
    where the belief is not used."""
    temperature: float
    """tau of the belief; infinite if it is not used."""
    transition: Tensor
    """T: (C, C), row the true class, column the given label."""
    class_shares: Tensor
    """pi: (C,), the true mix of classes in train."""
    log_likelihood: float
    """Of a given label under the model, the mean; what trusted points add is shared out."""
    chance: float = 0.0
    """By how much that would be less if T were estimated without the point each time."""
    evidence: Mapping[str, float] = field(default_factory=dict)
    """Of each kind of noise: its log-likelihood less its price, and that of beliefs before."""


def label_posterior(
    log_belief: Tensor,
    labels: Tensor,
    trusted_shares: Tensor,
    *,
    least_temperature: float = 0.0,
    trusted: tuple[Tensor, Tensor] | None = None,
    before: Mapping[str, float] | None = None,
    iterations: int = 30,
) -> LabelPosterior:
    """Weigh belief against given labels.

    Args:
        log_belief: (N, C) log-probabilities of a network that was not trained on these points.
        labels: (N,) given labels.
        trusted_shares: (C,) class mix under which the network learned.
        least_temperature: that of points whose label is known to be right, if there are any; the
            belief is taken for no surer than it is right there.
        trusted: (m, C) and (m,), beliefs of such points and their labels, whose likelihood counts
            as well. Wrong labels are else explained by a belief that is taken for very unsure
            as well as by noise, where they are few or where such a belief foretells them.
        before: the evidence of beliefs before, which counts as much when the kind of noise is
            chosen. A belief that has learned from labels which lean on the given ones foretells
            some of their noise, and alone may make it seem none.

    Forty beliefs, all but the last in keeping with the given label. Trusted points say that such a
    belief is right, so that label is taken for wrong:

    >>> belief = torch.tensor([[0.99, 0.01], [0.01, 0.99]]).log().repeat(20, 1)
    >>> given = torch.tensor([0, 1] * 19 + [0, 0])
    >>> trusted = belief, torch.tensor([0, 1] * 20)
    >>> posterior = label_posterior(belief, given, torch.tensor([0.5, 0.5]), trusted=trusted)
    >>> posterior.labels[-2:].argmax(-1)
    tensor([0, 1])
    """
    count, classes = log_belief.shape
    allowed = {tau for tau in (least_temperature, *TEMPERATURES) if tau >= least_temperature}
    temperatures = sorted(allowed - {0.0})
    weight = 1 / min(count, GIVEN_COUNT_AS)

    def fit(kind: str, tau: float) -> LabelPosterior:
        beliefs = F.log_softmax(log_belief / tau, -1)
        found = _fit(beliefs, labels, trusted_shares, tau, kind, iterations)
        both = found.log_likelihood + weight * _likelihood(trusted, tau)
        return replace(found, log_likelihood=both)

    fits = {kind: _climb(partial(fit, kind), temperatures) for kind in KINDS}
    evidence = {
        kind: count * fit.log_likelihood - _price(fit, count) + (before or {}).get(kind, 0.0)
        for kind, fit in fits.items()
    }
    best = fits[max(KINDS, key=evidence.__getitem__)]
    shares = torch.bincount(labels, minlength=classes).to(log_belief.dtype) / count
    without = float(shares.log()[labels].mean()) + weight * _likelihood(trusted, math.inf)
    # eps, tau and pi must earn their place, as in the Bayesian information criterion.
    if count * (best.log_likelihood - without) <= 0.5 * (classes + 1) * math.log(count):
        return LabelPosterior(
            labels=F.one_hot(labels, classes).to(log_belief.dtype),
            kind=NONE,
            noise_rate=0.0,
            temperature=math.inf,
            transition=torch.eye(classes, dtype=shares.dtype, device=shares.device),
            class_shares=shares,
            log_likelihood=without,
        )
    return replace(best, evidence=evidence)


def _climb(fit: Callable[[float], LabelPosterior], temperatures: Sequence[float]) -> LabelPosterior:
    """The likeliest of the fits at ascending temperatures, uphill from the one nearest to 1.

    Most fits need not be made: from there the likelihood has one hill. Far above 1, where 30
    iterations do not always settle between flat beliefs and few wrong labels, there can be others.
    Then finer steps around it: between two temperatures a belief that is taken for too sure, with
    some noise, would stand in for the right one without.
    """
    start = min(range(len(temperatures)), key=lambda k: abs(math.log(temperatures[k])))
    best, at = fit(temperatures[start]), start
    for step in (1, -1):
        while 0 <= at + step < len(temperatures):
            other = fit(temperatures[at + step])
            if other.log_likelihood <= best.log_likelihood:
                break
            best, at = other, at + step
        if at != start:
            break
    for factor in FINER:
        for tau in (best.temperature * factor, best.temperature / factor):
            if temperatures[0] <= tau <= temperatures[-1]:
                other = fit(tau)
                if other.log_likelihood > best.log_likelihood:
                    best = other
                    break
    return best


def _likelihood(trusted: tuple[Tensor, Tensor] | None, tau: float) -> float:
    """Log-likelihood of labels (m,) that are right under beliefs (m, C) at a temperature."""
    if trusted is None:
        return 0.0
    log_belief, labels = trusted
    return -float(F.cross_entropy(log_belief / tau, labels, reduction="sum"))


def _price(fit: LabelPosterior, count: int) -> float:
    """What noise of a kind must gain over the simpler ones, in nats of the likelihood.

    eps is worth what the Bayesian information criterion asks of one number. Of the C - 1 numbers of
    a row of T shrinkage leaves a share free; k free numbers gain half a chi-squared by chance, k/2
    with a deviation of sqrt(k/2). Of many classes most numbers are nothing, and gain less. Then it
    is enough to gain by the other labels, beyond what T gains by knowing each label itself, more
    than a belief's mistakes do.
    """
    if fit.kind == NONE:
        return 0.0
    eps = 0.5 * math.log(count)
    if fit.kind == UNIFORM:
        return eps
    points = fit.class_shares * count
    free = (len(points) - 1) * float((points / (points + SHRINKAGE)).sum())
    numbers = free / 2 + DEVIATIONS * math.sqrt(free / 2)
    chance = count * fit.chance
    seen = chance + DEVIATIONS * math.sqrt(chance) + MISTAKES * count
    return eps + min(numbers, seen)


def _fit(
    log_belief: Tensor,
    labels: Tensor,
    trusted_shares: Tensor,
    tau: float,
    kind: str,
    iterations: int,
) -> LabelPosterior:
    """EM over (T, pi) at one temperature, for one kind of noise."""
    count, classes = log_belief.shape
    identity = torch.eye(classes, dtype=log_belief.dtype, device=log_belief.device)
    # No noise to speak of is one label in all: what is least believed still ranks last.
    noise = log_belief.new_tensor(1 / (count + 2) if kind == NONE else 0.1)
    transition = uniform = (1 - noise) * identity + noise / classes
    shares = trusted_shares
    q = log_belief.exp()
    confused = _confusion(labels, log_belief)
    confusion = confused(q)
    likelihood, chance = log_belief.new_tensor(-torch.inf), 0.0
    for k in range(iterations):
        prior = log_belief + (shares / trusted_shares).log()
        joint = prior + transition.log().T[labels]
        if k == iterations - 1:
            likelihood = (joint.logsumexp(-1) - prior.logsumexp(-1)).mean()
            if kind == BY_CLASS:
                blind = prior + _without_itself(q, confusion, uniform, labels).log()
                chance = float(likelihood - (blind.logsumexp(-1) - prior.logsumexp(-1)).mean())
        q = joint.softmax(-1)
        if kind != NONE:
            # One pseudo-count on either side keeps eps and pi inside (0, 1).
            confusion = confused(q)
            disagreement = count - confusion.trace()
            noise = ((disagreement + 1) / (count + 2) * classes / (classes - 1)).clamp(max=1)
            transition = uniform = (1 - noise) * identity + noise / classes
        if kind == BY_CLASS:
            transition = (confusion + SHRINKAGE * uniform) / (
                confusion.sum(1, keepdim=True) + SHRINKAGE
            )
        shares = (q.sum(0) + 1) / (count + classes)
    return LabelPosterior(
        labels=q,
        kind=kind,
        noise_rate=float(noise),
        temperature=tau,
        transition=transition,
        class_shares=shares,
        log_likelihood=float(likelihood),
        chance=max(chance, 0.0),
    )


def _confusion(labels: Tensor, like: Tensor) -> Callable[[Tensor], Tensor]:
    """From beliefs (N, C) to (C, C): how much of each class, a row, was given each label."""
    classes = like.shape[1]
    if classes <= MANY or like.is_cuda:  # there a sum by index comes out otherwise each time
        given = F.one_hot(labels, classes).to(like.dtype)
        return lambda q: q.T @ given
    return lambda q: q.new_zeros(classes, classes).index_add_(0, labels, q).T


def _without_itself(q: Tensor, confusion: Tensor, uniform: Tensor, labels: Tensor) -> Tensor:
    """(N, C) T[c, y] for each point's label y, had T been estimated from the other points."""
    counts = (confusion.T[labels] - q).clamp_min(0.0)
    return (counts + SHRINKAGE * uniform.T[labels]) / (confusion.sum(1) - q + SHRINKAGE)
