"""Features of the trusted points that hyper steps follow.

Theta rests during an outer loop, and so do the features of trusted points. A row of lambda is
visited once in it, so that what counts is how many trusted points a step follows, not how often
they change: unless told otherwise, one draw of many serves the whole loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat

import torch
from torch import Tensor

from autodo.config import Config
from autodo.data.loader import Loader

WORK = 4
"""Points that hyper steps visit in an outer loop for every trusted one that is encoded."""


def trusted_points(config: Config, trusted: int, hyper_steps: int) -> int:
    """How many of so many trusted points an outer loop of so many hyper steps follows.

    >>> config = Config(trusted_points=2048, hyper_batch_size=256)
    >>> trusted_points(config, 1000, 195), trusted_points(config, 10_000, 195)
    (1000, 2048)
    >>> trusted_points(config, 1000, 2)
    256
    """
    size = config.hyper_batch_size
    return min(config.trusted_points, trusted, max(size, size * hyper_steps // WORK))


def trusted_features(
    loader: Loader,
    encode: Callable[[Tensor], Tensor],
    config: Config,
    *,
    hyper_steps: int,
    seed: int,
) -> Iterator[tuple[Tensor, Tensor]]:
    """(features, labels) for each hyper step of an outer loop, without end.

    ``encode`` takes images of at most ``hyper_batch_size``; ``seed`` chooses the points.
    """
    size = config.hyper_batch_size
    if config.trusted_every is not None:
        for images, labels, _ in loader.sampler(size, seed):
            yield from repeat((encode(images), labels), config.trusted_every)
    count = trusted_points(config, len(loader), hyper_steps)
    order = torch.randperm(len(loader), generator=torch.Generator().manual_seed(seed))
    parts = [
        (encode(images), labels)
        for images, labels, _ in loader.batches(size, seed=seed, points=order[:count])
    ]
    features, labels = (torch.cat(column) for column in zip(*parts, strict=True))
    yield from repeat((features, labels))
