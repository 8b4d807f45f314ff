"""The hyper step: from a batch and a trusted batch to a step of lambda.

It composes implicit/ (the hypergradient at the head) with hyper/ (the tables): features of
both batches in eval mode, closed form at the head, and, only if augmentation is
learned, one backward pass from the features to the augmentation rows in which no weight
gradient is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from autodo.errors import InputError, NumericalError
from autodo.hyper.dataset_model import DatasetModel
from autodo.hyper.follow import follow as follow_network
from autodo.implicit.head import HeadHypergradient, all_finite, head_hypergradient
from autodo.implicit.solvers import Neumann, Solver
from autodo.models.head import check_head
from autodo.train.watch import preview

Encoder = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class HyperStep:
    """What one hyper step saw, as scalars on the device; reading them waits for it."""

    trusted_loss: Tensor
    residual: Tensor
    diverged: Tensor
    finite: Tensor


def head_input(model: nn.Module, head: nn.Linear) -> Encoder:
    """An encoder that runs the whole model and returns what its head was given."""

    def encode(images: Tensor) -> Tensor:
        seen: list[Tensor] = []
        hook = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            model(images)
        finally:
            hook.remove()
        return seen[-1].flatten(1)

    return encode


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode inside, and exactly the modules that were training before are so after."""
    training = [m for m in module.modules() if m.training]
    module.eval()
    try:
        yield
    finally:
        for m in training:
            m.training = True


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """No parameter asks for a gradient inside, so a backward pass computes and keeps none."""
    asking = [p for p in module.parameters() if p.requires_grad]
    for p in asking:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in asking:
            p.requires_grad_(True)


class HyperOptimizer:
    """Moves the rows of a DatasetModel along the hypergradient of the trusted loss.

    Args:
        data: the dataset model.
        head: the last linear layer of the network.
        solver: of the inverse-Hessian product.
        lr: learning rate of all tables, or of each: {"augment": .., "weight": .., "label": ..}.
        learn: the tables to move, all unless told; the others keep their values.

    Each call of ``step`` takes the encoder: the model itself (any module that contains the head),
    a module or method that gives the head's input, or any callable that does. All but the last
    are put in eval mode for the step; a plain function must see to that itself.
    """

    def __init__(
        self,
        data: DatasetModel,
        *,
        head: nn.Linear,
        solver: Solver | None = None,
        lr: float | Mapping[str, float] = 0.05,
        learn: Collection[str] | None = None,
    ) -> None:
        check_head(head, data.num_classes)
        self.data, self.head = data, head
        self.solver = Neumann() if solver is None else solver
        self.lr = dict(lr) if isinstance(lr, Mapping) else dict.fromkeys(data.tables, lr)
        self.learn = tuple(n for n in data.tables if learn is None or n in learn)
        if not self.learn and (learn is None or len(learn) > 0):
            raise InputError(
                "there is nothing to learn",
                f"the dataset model has the tables {list(data.tables)}, learn is {learn}",
                "switch on reweight, relabel or augment",
            )

    def step(
        self,
        encoder: Encoder | nn.Module,
        batch: tuple[Tensor, Tensor],
        trusted: tuple[Tensor, Tensor],
        *,
        generator: torch.Generator | None = None,
        noise: Tensor | None = None,
        scale: float | Tensor = 1.0,
        follow: float | Tensor | None = None,
        encoded: bool = False,
        check: bool = True,
    ) -> HyperStep:
        """One step of lambda.

        Args:
            batch: (images, index) of training points, not yet augmented.
            trusted: (images, labels).
            generator: of the augmentation's random numbers, unless they are given as ``noise``.
            scale: multiplies the learning rates (a schedule).
            follow: how far labels move towards what the network itself believes of the batch, from
                0 to 1, after their step along the hypergradient (``hyper.follow``).
            encoded: trusted holds features already (what ``encode`` gave) instead of images.
            check: raise at once if the solver diverged or the gradient is not finite; a loop that
                must not wait for the device passes False and looks at the result later.
        """
        images, index = batch
        trusted_images, trusted_labels = trusted
        module, encode = self._encoder(encoder)
        with evaluating(module), frozen(module):
            with torch.no_grad():
                trusted_features = trusted_images if encoded else encode(trusted_images)
            rows, features = self._train_features(encode, images, index, generator, noise)
            gradient = self.gradient(features.detach(), index, trusted_features, trusted_labels)
            gradients = {
                "weight": gradient.weight_logits[:, None],
                "label": gradient.label_logits,
            }
            if rows is not None:
                (gradients["augment"],) = torch.autograd.grad(
                    features, rows, gradient.features.to(features.dtype)
                )
        gradients = {name: gradients[name] for name in self.learn}
        finite = gradient.finite
        if "augment" in gradients:
            finite = finite & all_finite(gradients["augment"])
        result = HyperStep(
            trusted_loss=gradient.trusted_loss,
            residual=gradient.solution.residual,
            diverged=gradient.solution.diverged,
            finite=finite,
        )
        if check:
            # A NaN among the features makes the solver diverge too, and is its cause: first.
            if not bool(result.finite):
                raise NumericalError(
                    f"the hypergradient of the points {preview(index)} is not finite",
                    "the features or the learned rows of these points, or the trusted batch, "
                    "are not finite",
                    "look at these examples; lower the learning rates",
                )
            gradient.solution.check()
        for name, g in gradients.items():
            self.data.table(name).step(index, g, self.lr[name] * scale)
        if follow is not None:
            with torch.no_grad():
                logits = self.head(features.to(self.head.weight.dtype))
            follow_network(self.data, index, logits, follow)
        return result

    def _encoder(self, encoder: Encoder | nn.Module) -> tuple[nn.Module, Encoder]:
        """The module to put in eval mode, and the way from images to the head's input."""
        if isinstance(encoder, nn.Module):
            whole = any(module is self.head for module in encoder.modules())
            return encoder, head_input(encoder, self.head) if whole else encoder
        owner = getattr(encoder, "__self__", None)  # a method such as model.forward_features
        return owner if isinstance(owner, nn.Module) else self.head, encoder

    @torch.no_grad()
    def encode(self, encoder: Encoder | nn.Module, images: Tensor) -> Tensor:
        """The head's input for ``images``, in eval mode: (B, D)."""
        module, encode = self._encoder(encoder)
        with evaluating(module):
            return encode(images)

    def _train_features(
        self,
        encode: Encoder,
        images: Tensor,
        index: Tensor,
        generator: torch.Generator | None,
        noise: Tensor | None,
    ) -> tuple[Tensor | None, Tensor]:
        """Augmentation rows (a leaf, or None where they are not learned) and the features."""
        augmentation = self.data.augmentation
        if augmentation is None or "augment" not in self.learn:
            with torch.no_grad():
                return None, encode(self.data.augment(images, index, generator, noise=noise))
        with torch.enable_grad():
            if noise is None:
                images = self.data.turned(images, generator)
            rows = self.data.table("augment").gather(index).detach().clone().requires_grad_()
            return rows, encode(augmentation(images, rows, generator, noise=noise))

    def gradient(
        self, features: Tensor, index: Tensor, trusted_features: Tensor, trusted_labels: Tensor
    ) -> HeadHypergradient:
        """The hypergradient at the head from the features (B, D) of ``index`` and of trusted."""
        dtype = self.head.weight.dtype
        data = self.data
        weight_logits = data.weight_logits(index).to(dtype)
        with torch.no_grad():
            if data.relabel:
                label_logits, labels = data.label_logits(index).to(dtype), None
            else:
                labels = data.labels[index]
                label_logits = weight_logits.new_zeros(len(index), data.num_classes)
            return head_hypergradient(
                features.to(dtype),
                self.head.weight.detach(),
                None if self.head.bias is None else self.head.bias.detach(),
                weight_logits,
                label_logits,
                trusted_features.to(dtype),
                trusted_labels,
                solver=self.solver,
                labels=labels,
                loss=data.training_loss.name,
                logit_adjustment=data.logit_adjustment,
            )

    def density(
        self, features: Tensor, index: Tensor, trusted_features: Tensor, trusted_labels: Tensor
    ) -> dict[str, float]:
        """Squared norms and inner product of trusted and training gradient at the head (2.3)."""
        at_head = self.gradient(features, index, trusted_features, trusted_labels)
        v, g = at_head.trusted_gradient, at_head.train_gradient
        return {
            "trusted_gradient_norm2": float(v.square().sum()),
            "train_gradient_norm2": float(g.square().sum()),
            "gradient_inner_product": float((v * g).sum()),
            "solver_residual": float(at_head.solution.residual),
        }
