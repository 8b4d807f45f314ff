"""What a label probably is, given what a network believes that has never seen it.

A network that has not seen training point i believes b_i(c) of it. True
classes are drawn with shares pi, and class c is labelled y with probability T[c, y]. Then

    P(true = c | belief, given = y)  ~  b_i(c)^(1/tau) pi_c / pi0_c T[c, y]

with pi0 the trusted shares. pi and T come from expectation maximisation, T shrunk towards
uniform noise of rate eps, the belief's temperature tau from the likelihood of the given
labels. A belief that tells nothing of the given labels cannot be told from labels that are all
wrong; then the given labels stand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

TEMPERATURES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)
SHRINKAGE = 50.0
"""Points per class that the uniform-noise model counts as in the estimate of T."""


@dataclass(frozen=True, kw_only=True)
class LabelPosterior:
    """q of every point and the noise model it came from."""

    labels: Tensor
    """q: (N, C)."""
    noise_rate: float
    """eps: the share of points whose label was drawn at random, were the noise uniform."""
    temperature: float
    """tau of the belief; infinite if it is not used."""
    transition: Tensor
    """T: (C, C), row the true class, column the given label."""
    class_shares: Tensor
    """pi: (C,), the true mix of classes in train."""
    log_likelihood: float
    """Mean log-likelihood of a given label under the model."""


def label_posterior(
    log_belief: Tensor,
    labels: Tensor,
    trusted_shares: Tensor,
    *,
    least_temperature: float = 0.0,
    iterations: int = 30,
) -> LabelPosterior:
    """Weigh belief against given labels.

    Args:
        log_belief: (N, C) log-probabilities of a network that was not trained on these points.
        labels: (N,) given labels.
        trusted_shares: (C,) class mix under which the network learned.
        least_temperature: that of points whose label is known to be right, if there are any; the
            belief is taken for no surer than it is right there.

    Forty beliefs, all but the last in keeping with the given label; that one is taken for wrong:

    >>> belief = torch.tensor([[0.99, 0.01], [0.01, 0.99]]).log().repeat(20, 1)
    >>> given = torch.tensor([0, 1] * 19 + [0, 0])
    >>> label_posterior(belief, given, torch.tensor([0.5, 0.5])).labels[-2:].argmax(-1)
    tensor([0, 1])
    """
    fits = (
        _fit(F.log_softmax(log_belief / tau, -1), labels, trusted_shares, tau, iterations)
        for tau in (least_temperature, *TEMPERATURES)
        if tau > 0 and tau >= least_temperature
    )  # one at a time in memory
    best = max(fits, key=lambda fit: fit.log_likelihood)
    count, classes = log_belief.shape
    given = F.one_hot(labels, classes).to(log_belief.dtype)
    shares = given.mean(0)
    without = float(shares.log()[labels].mean())
    # eps, tau and pi must earn their place, as in the Bayesian information criterion.
    if count * (best.log_likelihood - without) <= 0.5 * (classes + 1) * math.log(count):
        return LabelPosterior(
            labels=given,
            noise_rate=0.0,
            temperature=math.inf,
            transition=torch.eye(classes, dtype=given.dtype, device=given.device),
            class_shares=shares,
            log_likelihood=without,
        )
    return best


def _fit(
    log_belief: Tensor, labels: Tensor, trusted_shares: Tensor, tau: float, iterations: int
) -> LabelPosterior:
    """EM over (T, pi) at one temperature."""
    count, classes = log_belief.shape
    given = F.one_hot(labels, classes).to(log_belief.dtype)
    identity = torch.eye(classes, dtype=log_belief.dtype, device=log_belief.device)
    noise = log_belief.new_tensor(0.1)
    transition = (1 - noise) * identity + noise / classes
    shares = trusted_shares
    q = log_belief.exp()
    likelihood = log_belief.new_tensor(-torch.inf)
    for _ in range(iterations):
        prior = log_belief + (shares / trusted_shares).log()
        joint = prior + transition.log().T[labels]
        likelihood = (joint.logsumexp(-1) - prior.logsumexp(-1)).mean()
        q = joint.softmax(-1)
        # One pseudo-count on either side keeps eps and pi inside (0, 1).
        confusion = q.T @ given
        disagreement = count - confusion.trace()
        noise = ((disagreement + 1) / (count + 2) * classes / (classes - 1)).clamp(max=1)
        uniform = (1 - noise) * identity + noise / classes
        transition = (confusion + SHRINKAGE * uniform) / (
            confusion.sum(1, keepdim=True) + SHRINKAGE
        )
        shares = (q.sum(0) + 1) / (count + classes)
    return LabelPosterior(
        labels=q,
        noise_rate=float(noise),
        temperature=tau,
        transition=transition,
        class_shares=shares,
        log_likelihood=float(likelihood),
    )
