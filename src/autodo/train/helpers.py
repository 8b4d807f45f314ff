"""Small helpers of the loop: features and scores, a copy of weights, what is random for what."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autodo.data.loader import Loader
from autodo.errors import NumericalError
from autodo.train.watch import preview

EVALUATION_BATCH = 512
TRAIN, HYPER, TRUSTED, AUGMENT, MODEL, DENSITY, BELIEF, FOLDS = range(8)
"""Purposes of random numbers: the second word of every derived seed."""


def encoded(
    loader: Loader, encoder: Callable[[Tensor], Tensor], points: Tensor | None = None
) -> Tensor:
    """Features (n, D) of the points of an index (n,), or of all, as they are."""
    batches = loader.batches(EVALUATION_BATCH, seed=None, points=points)
    return torch.cat([encoder(images) for images, _, _ in batches])


def scores(head: nn.Linear, features: Tensor, labels: Tensor) -> dict[str, float]:
    """Cross-entropy and share of errors of a head on features (n, D) with labels (n,)."""
    logits = head(features)
    error = (logits.argmax(-1) != labels).float().mean()
    return {"loss": float(F.cross_entropy(logits, labels)), "error": float(error)}


def check_finite(features: Tensor, index: Tensor) -> None:
    """Raise if a network's features (n, D) of the points ``index`` (n,) are not numbers."""
    finite = features.isfinite().all(-1)
    if not bool(finite.all()):
        raise NumericalError(
            f"the features of the points {preview(index[~finite])} are not finite",
            "the learning rate is too high for this network, or these images are extreme",
            "lower lr; look at these examples",
        )


def copied(model: nn.Module) -> dict[str, Tensor]:
    """The state of ``model``, which later steps do not change."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
