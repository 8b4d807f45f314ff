"""The bilevel loop, Alg. 1 of the paper.

``Trainer.epochs`` is the algorithm: every epoch descends the training loss in theta (the inner
objective), then, from epoch E on, the trusted loss in lambda (the outer one). Before that, unless
the configuration says none, networks that each leave out a fold say what the labels probably are
(``phases``, ``belief``). All randomness is derived from (seed, purpose, epoch), so a run that is
taken up at an epoch's start goes on bit for bit like one that never stopped.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autodo.config import Config
from autodo.data.examples import Examples
from autodo.data.joined import join
from autodo.data.loader import Batch, Loader
from autodo.data.map_images import MapImages
from autodo.data.pixels import to_unit
from autodo.data.randomness import derive, generator_for, seeded
from autodo.hyper.augment import Augment
from autodo.hyper.dataset_model import DatasetModel
from autodo.hyper.follow import note_doubt, settle
from autodo.hyper.symmetry import SYMMETRIES, turn
from autodo.policies import get as get_policy
from autodo.train.ahead import ahead
from autodo.train.belief import believed_labels
from autodo.train.devices import choose_device
from autodo.train.helpers import (
    AUGMENT,
    BELIEF,
    HYPER,
    MODEL,
    TRAIN,
    TRUSTED,
    check_finite,
    encoded,
)
from autodo.train.hyper_optimizer import evaluating
from autodo.train.layout import give_layout
from autodo.train.measure import Measure
from autodo.train.phases import Phase, deal, plan
from autodo.train.recognition import agreed_symmetry, recognise
from autodo.train.recorded_policy import RecordedPolicy
from autodo.train.run_folder import Metrics
from autodo.train.schedule import cosine, mixing
from autodo.train.starts import Starts
from autodo.train.steps import Steps
from autodo.train.trusted import trusted_features
from autodo.train.views import averaged
from autodo.train.watch import Watch


class Trainer:
    """A network and a dataset model that learn together.

    Args:
        model: any network whose last layer is ``head``.
        train, trusted, test: checked sets. The test set is only ever measured.
        config: how.
        on_step: called after every step of either loop, for progress bars.
    """

    def __init__(
        self,
        model: nn.Module,
        head: nn.Linear,
        train: Examples | MapImages,
        trusted: Examples | MapImages,
        config: Config,
        *,
        test: Examples | MapImages | None = None,
        on_step: Callable[[], object] = lambda: None,
    ) -> None:
        self.config, self.on_step = config, on_step
        policy = get_policy(config.policy)
        self.device = choose_device(config.device)
        self.model, self.head = model.to(self.device), head
        self.count = len(train)
        points = join(train, trusted)

        def loader(data: Any) -> Loader:
            return Loader(data, self.device, num_workers=config.num_workers)

        self.points, self.trusted = loader(points), loader(trusted)
        self.test = None if test is None else loader(test)
        self.pool = len(points) if config.trusted_joins_training else self.count
        self.batch_size = min(config.batch_size, self.pool)
        self.hyper_batch_size = min(config.hyper_batch_size, self.count)
        self.steps = self.pool // self.batch_size
        self.hyper_steps = -(-(self.count // self.hyper_batch_size) // config.hyper_every)
        sizes = {self.batch_size, self.hyper_batch_size, min(config.hyper_batch_size, len(trusted))}
        self.policy = RecordedPolicy(policy, self.device, sizes=sizes, enabled=config.cuda_graphs)

        num_classes = head.out_features
        augment = Augment(config.augment, config.magnitude) if config.augment != "none" else None
        self.data = DatasetModel(
            points.labels,
            num_classes=num_classes,
            augment=augment,
            reweight=config.learn_weights,
            relabel=config.learn_labels,
            loss=config.loss,
            smoothing=config.smoothing,
            symmetry="none" if config.symmetry == "auto" else config.symmetry,
            shared_augment=config.shared_augment,
            optimizer=config.lambda_optimizer,
            logit_adjustment=torch.zeros(num_classes) if config.prior_adjustment else None,
            label_storage=config.label_storage,
            label_top=config.label_top,
            tables_on=config.tables_on,
        ).to(self.device)
        some = to_unit(torch.stack([train[i][0] for i in range(min(2, self.count))]))
        layout = give_layout(self.model, some.to(self.device))
        self.take = Steps(self.model, head, self.data, config, self.device, layout)
        self.hyper, self.optimizer = self.take.hyper, self.take.optimizer
        self._measure = Measure(
            self.take, self.points, self.trusted, self.test, self.policy, self.count
        )
        self.history: list[Metrics] = []
        self.plan = plan(config)
        self.fold = deal(train.labels, trusted.labels, config)
        self.starts = Starts(self.model, self.plan, warm=config.warm_start)
        if config.learn_labels and self.data.logit_adjustment is not None:
            every = torch.arange(len(points), device=self.device)
            for part in (every[: self.count], every[self.count :]):
                self.data.set_given_labels(part, config.smoothing)

    @property
    def total_steps(self) -> int:
        """Steps of both loops over the whole run."""
        return self._steps_until(self.plan.epochs)

    @property
    def done_steps(self) -> int:
        """Steps of the epochs in the history."""
        return self._steps_until(len(self.history))

    def _steps_until(self, epoch: int) -> int:
        hyper = max(0, epoch - self.plan.hyper_start) if self.config.learns else 0
        return hyper * self.hyper_steps + sum(
            max(0, min(epoch, phase.end) - phase.start) * self._steps_of(phase)
            for phase in self.plan.phases
        )

    def _steps_of(self, phase: Phase) -> int:
        """Training steps of one epoch."""
        if phase.fold is None:
            return self.steps
        seen = len(self._seen(phase))
        return seen // min(self.config.batch_size, seen)

    def _seen(self, phase: Phase) -> Tensor:
        """The points that the network of a phase learns from, on the host."""
        if phase.fold is None:
            return torch.arange(self.pool)
        return (self.fold[: self.pool] != phase.fold).nonzero()[:, 0]

    def epochs(self) -> Iterator[Metrics]:
        """Alg. 1, from the epoch after the history to the last; yields each epoch's metrics."""
        config = self.config
        while (epoch := len(self.history)) < self.plan.epochs:
            start, phase = time.perf_counter(), self.plan.at(epoch)
            metrics: Metrics = {"epoch": epoch + 1}
            if phase.fold is not None:
                metrics["fold"] = phase.fold + 1
            with seeded(derive(config.seed, MODEL, epoch), self.device):
                if epoch == phase.start:
                    self._begin(phase)
                metrics |= self._descend_theta(epoch, phase)
                if not phase.last and epoch + 1 == phase.end:
                    if phase.fold is not None:
                        metrics |= self._believe(phase.fold, asked=self._finds_symmetry(phase))
                    self.starts.keep(phase, self.model)
                if epoch >= self.plan.hyper_start and config.learns:
                    metrics |= self._descend_lambda(epoch)
                    self._adjust_prior()
                    if config.follows and epoch + 1 == self.plan.epochs:
                        settle(self.data, self.count)
            if (epoch + 1 - phase.start) % config.measure_every == 0 or epoch + 1 == phase.end:
                metrics |= self._measure(epoch, stays=phase.last)
            metrics["seconds"] = time.perf_counter() - start
            self.history.append(metrics)
            self.plan = plan(config, self.history)
            yield metrics

    def _descend_theta(self, epoch: int, phase: Phase) -> Metrics:
        """The inner loop: one pass of SGD on L = mean_i w_i l_i, or on the given labels before."""
        config = self.config
        generator = generator_for(config.seed, AUGMENT, epoch)
        watch = Watch(
            "the training loss",
            "the learning rate is too high for this network, or these images are extreme",
            f"lower lr (now {config.lr}); look at these examples",
        )
        total, lr = torch.zeros((), device=self.device), 0.0
        steps = self._steps_of(phase)
        done = epoch - phase.start + phase.before
        whole = (phase.before + phase.epochs + phase.after) * steps
        warmup = config.warmup_epochs * steps
        self.model.train()
        symmetry = 0 if self._finds_symmetry(phase) else None
        batches = self.prepared(self._batches(epoch, phase), generator, symmetry)
        for step, (images, index, noise) in enumerate(batches, done * steps):
            lr = config.lr * cosine(step, whole, warmup)
            loss = self.take.theta(images, index, noise, lr, given=phase.given)
            watch.see(loss.isfinite(), index)
            total += loss
            self.on_step()
        watch.look()
        return {"lr": lr, "train_loss": float(total) / steps}

    def prepared(
        self, batches: Iterator[Batch], generator: torch.Generator, symmetry: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Images after the policy, index, and the random numbers of the learned augmentation.

        ``symmetry`` is another than that of the dataset.
        """
        level = int(self.data.symmetry) if symmetry is None else symmetry

        def prepare() -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
            for images, _, index in batches:
                images = turn(self.policy(images, generator), level, generator)
                noise = self.data.noise(len(index), generator)
                yield images, index, None if noise is None else self.points.send(noise)

        return ahead(prepare(), self.device)

    def _batches(self, epoch: int, phase: Phase) -> Iterator[Batch]:
        points: int | Tensor = self.pool if phase.fold is None else self._seen(phase)
        return self.points.batches(
            min(self.batch_size, points if isinstance(points, int) else len(points)),
            seed=derive(self.config.seed, TRAIN, epoch),
            drop_last=True,
            points=points,
            balanced=self.config.balanced_batches and phase.last,
        )

    @torch.no_grad()
    def _begin(self, phase: Phase) -> None:
        """Before the first pass of a phase: its network, and logits adjusted to its class mix."""
        if phase.start > 0:
            self.take.start_from(self.starts[phase])
        if phase.last:
            self._adjust_prior()
            if self.config.follows:
                note_doubt(self.data, self.count)
        elif self.data.logit_adjustment is not None:
            seen = self._seen(phase)
            given = torch.bincount(
                self.data.labels[seen.to(self.device)], minlength=self.data.num_classes
            )
            self._adjust_to(given / len(seen) if phase.given else self.data.class_shares(seen))

    def _finds_symmetry(self, phase: Phase) -> bool:
        """Whether its network says which symmetry images have; it must not have been told."""
        return phase.given and self.config.finds_symmetry

    @torch.no_grad()
    def _believe(self, fold: int, *, asked: bool = False) -> Metrics:
        """Start the labels of a fold from what the network that has not seen it believes.

        ``asked``: which symmetry its images have, too.
        """
        points = (self.fold == fold).nonzero()[:, 0]
        with evaluating(self.model):
            said = self._recognise(points) if asked else {}
            encode = averaged(self.take.encode, int(self.data.symmetry))
            features = encoded(self.points, encode, points)
            check_finite(features, points.to(self.device))
            log_belief = F.log_softmax(self.head(features).float(), -1)
        points = points.to(self.device)
        labels, ours = self.data.labels[points], points < self.count
        q, transition, metrics = believed_labels(
            features[ours], labels[ours], features[~ours], labels[~ours], log_belief[ours],
            self._trusted_shares(), seed=derive(self.config.seed, BELIEF, fold),
        )  # fmt: skip
        toward = None if self.data.logit_adjustment is None else q.mean(0)
        self.data.set_soft_labels(points[ours], q, self.config.smoothing, toward)
        if fold == 0:
            self.data.transition.zero_()
        self.data.transition += transition / self.config.belief_folds
        return said | metrics

    def _recognise(self, points: Tensor) -> Metrics:
        """The symmetry of images by all networks so far that have not seen them."""
        metrics = recognise(self.points, self.take.encode, self.head, points)
        before = [said for said in self.history if "symmetry" in said]
        level = agreed_symmetry([*before, metrics])
        self.data.symmetry.fill_(level)
        return metrics | {"symmetry": SYMMETRIES[level]}

    def _trusted_shares(self) -> Tensor:
        counts = torch.bincount(self.trusted.labels, minlength=self.data.num_classes) + 1.0
        return counts / counts.sum()

    def _adjust_prior(self) -> None:
        """Logit adjustment from the mix of classes trained on to the trusted one."""
        if self.data.logit_adjustment is not None:
            each = None
            if self.config.balanced_batches:
                given = self.data.labels[: self.pool]
                each = 1 / torch.bincount(given, minlength=self.data.num_classes)[given]
            self._adjust_to(self.data.class_shares(self.pool, each))

    def _adjust_to(self, shares: Tensor) -> None:
        assert self.data.logit_adjustment is not None
        shift = (shares.clamp_min(1e-6) / self._trusted_shares()).log()
        self.data.logit_adjustment.copy_(self.config.prior_adjustment * shift)

    def _descend_lambda(self, epoch: int) -> Metrics:
        """The outer loop: hyper steps on the training points, theta held still."""
        config = self.config
        generator = generator_for(config.seed, AUGMENT, epoch, 1)
        finite = Watch(
            "the hypergradient",
            "the features or the learned rows of these points are not finite",
            "look at these examples; lower augment_lr, weight_lr and label_lr",
        )
        elapsed = (epoch - self.plan.hyper_start) * self.hyper_steps
        whole = config.hyper_epochs * self.hyper_steps
        warmup = config.warmup_epochs * self.hyper_steps
        batches = self.points.batches(
            self.hyper_batch_size,
            seed=derive(config.seed, HYPER, epoch),
            drop_last=True,
            points=self.count,
        )
        visited = islice(batches, 0, None, config.hyper_every)
        trusted = self.trusted_features(epoch)
        visits = config.hyper_epochs / config.hyper_every  # of a point, if no batch is short
        follow = mixing(visits, config.belief_share) if config.follows else None
        diverged = []
        with evaluating(self.model):
            for k, (images, index, noise) in enumerate(self.prepared(visited, generator)):
                schedule = cosine(elapsed + k, whole, warmup) if config.lambda_schedule else 1.0
                result = self.take.hyper_step(images, index, noise, next(trusted), schedule, follow)
                finite.see(result.finite, index)
                diverged.append(result.diverged)
                self.on_step()
        finite.look()
        often = float(torch.stack(diverged).float().mean())
        if often > 0:
            solver = self.hyper.solver
            warnings.warn(
                f"{solver} diverged in {often:.0%} of the hyper steps of epoch {epoch + 1}: "
                f"{solver.divergence_cause}. {solver.divergence_cure}.",
                stacklevel=2,
            )
        return {"solver_diverged": often}

    def trusted_features(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(features, labels) of trusted points for each hyper step of an epoch, in eval mode."""
        generator = generator_for(self.config.seed, AUGMENT, epoch, 2)
        return trusted_features(
            self.trusted,
            lambda images: self.take.features(self.policy(images, generator)),
            self.config,
            hyper_steps=self.hyper_steps,
            seed=derive(self.config.seed, TRUSTED, epoch),
        )

    def state(self) -> dict[str, Any]:
        """All that changes during a run."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "data": self.data.state_dict(),
            "history": self.history,
            "starts": self.starts.state(self.plan, len(self.history)),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take up a state that ``state`` gave."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.data.load_state_dict(state["data"])
        self.history = list(state["history"])
        self.plan = plan(self.config, self.history)
        self.starts.weights = state["starts"]
