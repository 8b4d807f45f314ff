"""What a label probably is, given what a network believes that has never seen it.

A network that has learned from trusted points alone believes b_i(c) of training point i. True
classes are drawn with shares pi, and class c is labelled y with probability T[c, y]. Then

    P(true = c | belief, given = y)  ~  b_i(c)^(1/tau) pi_c / pi0_c T[c, y]

with pi0 the trusted shares. pi and T come from expectation maximisation, T shrunk towards
uniform noise of rate eps, the belief's temperature tau from the likelihood of the given
labels: a belief that is worth little is flattened until the given labels outvote it.
"""

from __future__ import annotations

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
    """tau of the belief."""
    class_shares: Tensor
    """pi: (C,), the true mix of classes in train."""
    log_likelihood: float
    """Mean log-likelihood of a given label under the model."""


def label_posterior(
    log_belief: Tensor, labels: Tensor, trusted_shares: Tensor, *, iterations: int = 30
) -> LabelPosterior:
    """Weigh belief against given labels.

    Args:
        log_belief: (N, C) log-probabilities of a network that was not trained on these points.
        labels: (N,) given labels.
        trusted_shares: (C,) class mix under which the network learned.

    Two sure beliefs, one against its label; with enough points of the first kind the second is
    taken for a mistake:

    >>> belief = torch.tensor([[0.99, 0.01]]).log().repeat(20, 1)
    >>> posterior = label_posterior(belief, torch.tensor([0] * 19 + [1]), torch.tensor([0.5, 0.5]))
    >>> posterior.labels[[0, 19]].argmax(-1)
    tensor([0, 0])
    """
    fits = [
        _fit(F.log_softmax(log_belief / tau, -1), labels, trusted_shares, tau, iterations)
        for tau in TEMPERATURES
    ]
    return max(fits, key=lambda fit: fit.log_likelihood)


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
        class_shares=shares,
        log_likelihood=float(likelihood),
    )
