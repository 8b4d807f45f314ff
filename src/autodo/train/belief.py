"""Labels from what a network believes of points that it has not seen.

The network's features of its fold are frozen, and the audit's heads learn on them: one from the
trusted points of the fold alone, others from its given labels, out of fold once more; the trusted
points say how far to believe each (``auditing.belief``). With the noise that this belief shows the
given labels to have, it makes the posterior of every label.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from autodo.auditing.belief import estimate_labels, learn
from autodo.auditing.embeddings import Scale
from autodo.hyper.posterior import NONE, LabelPosterior
from autodo.train.run_folder import Metrics

HEAD_FOLDS = 5
ROUNDS = 2
"""How often the heads learn from the labels that their belief gave."""
FIT_POINTS = 100_000
"""Points that the heads learn from, at the most; what they learn is used on all."""
JUDGED_AT_A_TIME = 8192


def believed_labels(
    features: Tensor,
    given: Tensor,
    trusted_features: Tensor,
    trusted_labels: Tensor,
    log_belief: Tensor,
    trusted_shares: Tensor,
    *,
    seed: int,
) -> tuple[Tensor, Tensor, Metrics]:
    """q (n, C) of points with features (n, D) and given labels (n,), and what the noise is: T.

    T (C, C) is the identity where there is no noise to speak of.

    Args:
        trusted_features, trusted_labels: (m, D) and (m,), of trusted points that the network has
            not seen either.
        log_belief: (n, C) log-probabilities by the network's own head, used where trusted points
            do not have every class.
        trusted_shares: (C,) the trusted mix of classes.
    """
    classes = log_belief.shape[1]
    occur = torch.cat([given, trusted_labels]).unique()
    if 1 < len(occur) < classes:
        # Of a class without any example nothing is learned, and nothing is asked of trusted points.
        part = trusted_shares[occur]
        q_part, t_part, metrics = believed_labels(
            features, torch.searchsorted(occur, given),
            trusted_features, torch.searchsorted(occur, trusted_labels),
            F.log_softmax(log_belief[:, occur], -1), part / part.sum(), seed=seed,
        )  # fmt: skip
        transition = torch.eye(classes, dtype=t_part.dtype, device=t_part.device)
        transition[occur[:, None], occur] = t_part
        return torch.zeros_like(log_belief).index_copy_(1, occur, q_part), transition, metrics
    generator = torch.Generator().manual_seed(seed)
    if int(torch.bincount(trusted_labels, minlength=classes).min()) == 0:
        labels = estimate_labels(log_belief, given, trusted_shares, generator)
        q = labels(log_belief, given).exp()
        return q, *_described(labels.noise, q)
    scale = Scale.of(torch.cat([features, trusted_features]))
    features, trusted_features = scale(features), scale(trusted_features)
    some = torch.randperm(len(features), generator=generator)[:FIT_POINTS].to(features.device)
    learned = learn(
        features[some],
        given[some],
        trusted_features,
        trusted_labels,
        folds=max(2, min(HEAD_FOLDS, len(trusted_labels), len(some))),
        rounds=ROUNDS,
        seed=seed,
        steady=False,
    )
    fold = torch.full_like(given, -1)
    fold[some] = learned.fold.to(fold)
    q = torch.empty_like(log_belief)
    for part in torch.arange(len(features), device=features.device).split(JUDGED_AT_A_TIME):
        belief = learned.stacked.belief(features[part], fold[part])
        q[part] = learned.labels(belief, given[part]).exp()
    return q, *_described(learned.labels.noise, q)


def _described(noise: LabelPosterior | None, q: Tensor) -> tuple[Tensor, Metrics]:
    """T, which is exact without noise to speak of, and what is told of it."""
    rate = {"noise_rate": 0.0 if noise is None else noise.noise_rate}
    if noise is None or noise.kind == NONE:
        return torch.eye(q.shape[1], dtype=q.dtype, device=q.device), rate
    return noise.transition, rate
