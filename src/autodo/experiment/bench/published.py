"""The two steps as the paper's published code takes them: the comparator of ``autodo bench``.

float32 with TF32 convolutions, kernels launched one by one, a warp that enlarges the images four
times and shrinks them again, lambda as dense parameters under torch.optim.RMSprop, and the
hypergradient by second-order autograd on the head with ``create_graph``. Written anew from these
facts (design and figures of the published protocol), to be timed and nothing else.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autodo.hyper.augment import Augment
from autodo.hyper.relabel import initial_label_logits
from autodo.hyper.reweight import weights
from autodo.hyper.warp import affine_matrix, warp
from autodo.train.hyper_optimizer import head_input

ENLARGE = 4


class PublishedSteps:
    """A network with dense per-point hyperparameters."""

    def __init__(
        self,
        model: nn.Module,
        head: nn.Linear,
        labels: Tensor,
        num_classes: int,
        *,
        terms: int = 5,
        alpha: float = 0.01,
    ) -> None:
        self.model, self.head, self.terms, self.alpha = model, head, terms, alpha
        device = head.weight.device
        self.augment = Augment("affine")
        row = self.augment.initial_row().to(device)
        self.a = nn.Parameter(row.expand(len(labels), -1).clone())
        self.w = nn.Parameter(torch.zeros(len(labels), device=device))
        self.s = nn.Parameter(initial_label_logits(labels.to(device), num_classes))
        self.optimizer = torch.optim.SGD(
            model.parameters(), lr=1e-3, momentum=0.9, nesterov=True, weight_decay=1e-4
        )
        self.hyper_optimizer = torch.optim.RMSprop([self.a, self.w, self.s], lr=1e-3)

    def _warp(self, images: Tensor, index: Tensor) -> Tensor:
        values = self.augment.sample(self.a[index], len(images))
        names = dict(zip(self.augment.operations, values.unbind(-1), strict=True))
        large = F.interpolate(images, scale_factor=ENLARGE, mode="bilinear", align_corners=False)
        size = (large.shape[-2], large.shape[-1])
        large = warp(large, affine_matrix(size, **names))
        return F.interpolate(large, size=images.shape[-2:], mode="bilinear", align_corners=False)

    def _loss(self, logits: Tensor, index: Tensor) -> Tensor:
        log_p, log_q = logits.log_softmax(-1), self.s[index].log_softmax(-1)
        losses = 0.5 * ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)
        return (weights(self.w[index]) * losses).mean()

    def theta(self, images: Tensor, index: Tensor) -> Tensor:
        """A training step."""
        self.model.train()
        with torch.no_grad():
            images = self._warp(images, index)
        loss = self._loss(self.model(images), index)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def hyper(
        self, images: Tensor, index: Tensor, trusted_images: Tensor, trusted_labels: Tensor
    ) -> None:
        """A hyper step of A, W and S."""
        self.model.eval()
        encode, weight = head_input(self.model, self.head), self.head.weight
        trusted = F.cross_entropy(self.head(encode(trusted_images)), trusted_labels)
        (v,) = torch.autograd.grad(trusted, weight)
        loss = self._loss(self.head(encode(self._warp(images, index))), index)
        (gradient,) = torch.autograd.grad(loss, weight, create_graph=True)
        term, total = v, v
        for _ in range(self.terms):
            (product,) = torch.autograd.grad(gradient, weight, term, retain_graph=True)
            term = term - self.alpha * product
            total = total + term
        found = torch.autograd.grad(gradient, [self.a, self.w, self.s], -self.alpha * total)
        self.hyper_optimizer.zero_grad()
        for parameter, g in zip((self.a, self.w, self.s), found, strict=True):
            parameter.grad = g
        self.hyper_optimizer.step()
