"""The two steps of Alg. 1: one of theta on the training loss, one of lambda on the trusted loss.

Both are functions of tensors alone, so that on CUDA they are recorded once and replayed
(``recorded``): images already on the device, drawn random numbers and rates come in as arguments.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from autodo.config import Config
from autodo.hyper.dataset_model import DatasetModel
from autodo.train.devices import autocast, fast_convolutions
from autodo.train.hyper_optimizer import HyperOptimizer, HyperStep, frozen, head_input
from autodo.train.memory import keep_freed_memory
from autodo.train.recorded import Recorded
from autodo.train.sgd import SGD


class Steps:
    """Moves a network and a dataset model, a batch at a time."""

    def __init__(
        self,
        model: nn.Module,
        head: nn.Linear,
        data: DatasetModel,
        config: Config,
        device: torch.device,
        layout: torch.memory_format,
    ) -> None:
        self.model, self.head, self.data, self.config, self.device, self.layout = (
            model, head, data, config, device, layout
        )  # fmt: skip
        self.on_cuda = device.type == "cuda"
        if self.on_cuda:
            # Steps of a run before are in cycles with their recordings, which hold gigabytes.
            gc.collect()
        else:
            keep_freed_memory()
        self.hyper = HyperOptimizer(
            data,
            head=head,
            solver=config.make_solver(),
            lr={
                "augment": config.augment_lr,
                "weight": config.weight_lr,
                "label": config.label_lr,
            },
            learn=config.learns,
        )
        # A recorded step reads its rate from the device; a fused one reads it without waiting.
        self.rate = torch.tensor(config.lr, device=device) if self.on_cuda else None
        self.optimizer = self._make_optimizer()
        pool = torch.cuda.graph_pool_handle() if self.on_cuda else None
        self._theta = Recorded(
            partial(self._sgd, data.loss), device, pool=pool, enabled=config.cuda_graphs
        )
        self._given = Recorded(
            partial(self._sgd, data.given_loss), device, pool=pool, enabled=config.cuda_graphs
        )
        self._features = Recorded(
            lambda images: (self.encode(images),), device, pool=pool, enabled=config.cuda_graphs
        )
        self._lambda = Recorded(self._descend_hyper, device, pool=pool, enabled=config.cuda_graphs)

    def _make_optimizer(self) -> SGD | torch.optim.SGD:
        config, parameters = self.config, self.model.parameters()
        momentum, decay = config.momentum, config.weight_decay
        if self.rate is None:
            return SGD(parameters, lr=config.lr, momentum=momentum, weight_decay=decay)
        return torch.optim.SGD(
            parameters,
            lr=self.rate,
            momentum=momentum,
            nesterov=momentum > 0,
            weight_decay=decay,
            fused=True,
        )

    def theta(
        self,
        images: Tensor,
        index: Tensor,
        noise: Tensor | None,
        lr: float,
        *,
        given: bool = False,
    ) -> Tensor:
        """One step of SGD on L = mean_i w_i l_i, or on the given labels; returns the loss."""
        for group in self.optimizer.param_groups:
            if self.rate is None:
                group["lr"] = lr
            else:
                group["lr"] = self.rate  # also after loading a state, which brings its own
        if self.rate is not None:
            self.rate.fill_(lr)
        (loss,) = (self._given if given else self._theta)(images, index, noise)
        return loss

    def start_from(self, state: dict[str, Tensor]) -> None:
        """Give the network the weights ``state`` and the optimizer nothing to remember."""
        self.model.load_state_dict(state)
        for held in self.optimizer.state.values():
            if held.get("momentum_buffer") is not None:
                held["momentum_buffer"].zero_()  # in place: recorded steps know its address

    def _sgd(
        self,
        loss_of: Callable[[Tensor, Tensor], Tensor],
        images: Tensor,
        index: Tensor,
        noise: Tensor | None,
    ) -> tuple[Tensor]:
        with fast_convolutions(self.config.precision):
            with autocast(self.device, self.config.precision):
                seen = self.data.augment(images, index, noise=noise)
                logits = self.model(seen.contiguous(memory_format=self.layout))
            loss = loss_of(logits, index)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return (loss.detach(),)

    def hyper_step(
        self,
        images: Tensor,
        index: Tensor,
        noise: Tensor | None,
        trusted: tuple[Tensor, Tensor],
        scale: float,
        follow: float | None = None,
    ) -> HyperStep:
        """One step of lambda; ``trusted`` is (features, labels), the model is in eval mode."""
        factor = torch.full((), scale, device=self.device)
        rate = None if follow is None else torch.full((), follow, device=self.device)
        trusted_loss, residual, diverged, finite = self._lambda(
            images, index, noise, *trusted, factor, rate
        )
        return HyperStep(
            trusted_loss=trusted_loss, residual=residual, diverged=diverged, finite=finite
        )

    def _descend_hyper(
        self,
        images: Tensor,
        index: Tensor,
        noise: Tensor | None,
        features: Tensor,
        labels: Tensor,
        scale: Tensor,
        follow: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        # Without this the normalisations of an eval-mode pass with a graph are not fused.
        with fast_convolutions(self.config.precision), frozen(self.model):
            step = self.hyper.step(
                self.encode,
                (images, index),
                (features, labels),
                noise=noise,
                scale=scale,
                follow=follow,
                encoded=True,
                check=False,
            )
        return step.trusted_loss, step.residual, step.diverged, step.finite

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """``encode`` without a graph, for passes of one batch size in eval mode."""
        return self._features(images)[0]

    def encode(self, images: Tensor) -> Tensor:
        """The head's input (B, D): computed in the run's precision, given in the head's."""
        precision = self.config.precision
        with fast_convolutions(precision), autocast(self.device, precision):
            encoder = head_input(self.model, self.head)
            features = encoder(images.contiguous(memory_format=self.layout))
        return features.to(self.head.weight.dtype)
