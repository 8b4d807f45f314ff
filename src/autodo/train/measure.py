"""What is measured of a network after an epoch; no measurement chooses anything.

Errors on the trusted and the test set, and the density-matching view of the paper: the gradients of
training and trusted loss at the head, which the outer loop aligns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autodo.data.loader import Loader
from autodo.data.randomness import borrowed, derive, generator_for
from autodo.train.helpers import DENSITY, EVALUATION_BATCH, encoded, scores
from autodo.train.hyper_optimizer import evaluating
from autodo.train.recorded_policy import RecordedPolicy
from autodo.train.run_folder import Metrics
from autodo.train.steps import Steps

DENSITY_POINTS = 1024
"""Training points on which the two gradients are compared."""


class Measure:
    """Called with an epoch, it gives the metrics of the network as it is then.

    Args:
        take: the steps of the run, which know its network.
        points: training and then trusted points; the first ``count`` are training points.
        policy: what training images pass through before the learned augmentation.
    """

    def __init__(
        self,
        take: Steps,
        points: Loader,
        trusted: Loader,
        test: Loader | None,
        policy: RecordedPolicy,
        count: int,
    ) -> None:
        self.take, self.policy, self.count = take, policy, count
        self.points, self.trusted, self.test = points, trusted, test

    @torch.no_grad()
    def __call__(self, epoch: int, *, stays: bool) -> Metrics:
        """``stays``: it is the last network, not one that serves to judge labels."""
        encode, head = self.take.encode, self.take.head
        with evaluating(self.take.model):
            features, labels = encoded(self.trusted, encode), self.trusted.labels
            metrics = {f"trusted_{k}": v for k, v in scores(head, features, labels).items()}
            if not stays:
                return metrics
            if self.test is not None:
                found = scores(head, encoded(self.test, encode), self.test.labels)
                metrics |= {f"test_{k}": v for k, v in found.items()}
            if self.take.config.learns:
                metrics |= self._density(epoch, features, labels)
        return metrics

    def _density(self, epoch: int, trusted: Tensor, labels: Tensor) -> Metrics:
        """The density-matching view on some of the points, augmented as they are learned from."""
        seed, take = self.take.config.seed, self.take
        size = min(DENSITY_POINTS, self.count)
        index = torch.randperm(self.count, generator=generator_for(seed, DENSITY, epoch))[:size]
        index = index.to(trusted.device)
        generator = generator_for(seed, DENSITY, epoch, 1)

        def augmented(part: Tensor) -> Tensor:
            with borrowed(derive(seed, DENSITY, epoch, 2, int(part[0]))):  # for users' transforms
                fetched = self.points.fetch(part)
            images = self.policy(fetched, generator)
            return take.data.augment(images, part, generator)

        parts = index.split(EVALUATION_BATCH)
        features = torch.cat([take.encode(augmented(part)) for part in parts])
        return take.hyper.density(features, index, trusted, labels)
