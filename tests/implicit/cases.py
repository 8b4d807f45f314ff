"""Cases shared by the tests of implicit/: head problems in float64, and their loss written out.

``HeadProblem.train_loss`` is built from torch operations alone, independently of autodo.losses, so
that what it is compared with cannot share its mistakes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

from autodo.implicit import ConjugateGradient, Identity, Neumann, Solver

CLASSES = (2, 3, 10, 100)
SOFT_LOSSES = ("symmetric_kl", "kl", "cross_entropy")
LOSSES = (*SOFT_LOSSES, "hard")
"""``hard``: cross-entropy with the hard labels of the problem."""

# The symmetric KL has negative curvature here and there; the damping keeps the system definite, so
# that two orders of summation cannot take conjugate gradients to two different places.
SOLVERS: tuple[Solver, ...] = (
    Neumann(steps=0, alpha=0.3),
    Neumann(steps=5, alpha=0.01),
    Neumann(steps=7, alpha=0.1),
    Neumann(steps=4, alpha="auto"),
    ConjugateGradient(steps=6, damping=5.0),
    Identity(),
)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def point_losses(kind: str, logits: Tensor, label_logits: Tensor, labels: Tensor) -> Tensor:
    """l_i of each point, (B,), written out."""
    log_p = logits - logits.logsumexp(-1, keepdim=True)
    log_q = label_logits - label_logits.logsumexp(-1, keepdim=True)
    forward = F.kl_div(log_p, log_q, reduction="none", log_target=True).sum(-1)  # KL(q||p)
    backward = F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)  # KL(p||q)
    return {
        "symmetric_kl": (forward + backward) / 2,
        "kl": forward,
        "cross_entropy": -(torch.softmax(label_logits, -1) * log_p).sum(-1),
        "hard": F.cross_entropy(logits, labels, reduction="none"),
    }[kind]


@dataclass(frozen=True, kw_only=True)
class HeadProblem:
    """One training batch and one trusted batch in front of a linear head."""

    features: Tensor
    head_weight: Tensor
    head_bias: Tensor | None
    weight_logits: Tensor
    label_logits: Tensor
    labels: Tensor
    trusted_features: Tensor
    trusted_labels: Tensor
    logit_adjustment: Tensor | None
    loss: str

    @staticmethod
    def random(
        *,
        batch: int = 5,
        width: int = 4,
        classes: int = 3,
        loss: str = "symmetric_kl",
        bias: bool = True,
        adjusted: bool = False,
        trusted: int = 6,
        seed: int = 0,
    ) -> HeadProblem:
        generator = seeded(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        def classes_of(count: int) -> Tensor:
            return torch.randint(classes, (count,), generator=generator)

        return HeadProblem(
            features=normal(batch, width),
            head_weight=normal(classes, width) / 2,
            head_bias=normal(classes) if bias else None,
            weight_logits=normal(batch),
            label_logits=normal(batch, classes),
            labels=classes_of(batch),
            trusted_features=normal(trusted, width),
            trusted_labels=classes_of(trusted),
            logit_adjustment=normal(classes) if adjusted else None,
            loss=loss,
        )

    def to(self, dtype: torch.dtype) -> HeadProblem:
        """The same problem with its real numbers in another precision."""
        converted = {
            name: value.to(dtype)
            for name, value in vars(self).items()
            if isinstance(value, Tensor) and value.is_floating_point()
        }
        return replace(self, **converted)

    def train_loss(
        self, features: Tensor, head_weight: Tensor, weight_logits: Tensor, label_logits: Tensor
    ) -> Tensor:
        """L = mean_i w_i l_i as a function of what it is differentiated by."""
        logits = features @ head_weight.T
        if self.head_bias is not None:
            logits = logits + self.head_bias
        if self.logit_adjustment is not None:
            logits = logits + self.logit_adjustment
        weights = torch.log1p(weight_logits.exp()) / math.log(2)
        losses = point_losses(self.loss, logits, label_logits, self.labels)
        return (weights * losses).mean()

    def trusted_loss(self, head_weight: Tensor) -> Tensor:
        """L_v: plain cross-entropy, never adjusted."""
        logits = self.trusted_features @ head_weight.T
        if self.head_bias is not None:
            logits = logits + self.head_bias
        chosen = logits[torch.arange(len(logits)), self.trusted_labels]
        return (logits.logsumexp(-1) - chosen).mean()


problems = st.builds(
    HeadProblem.random,
    batch=st.sampled_from((1, 2, 5, 8)),
    width=st.sampled_from((1, 3, 6)),
    classes=st.sampled_from(CLASSES),
    loss=st.sampled_from(LOSSES),
    bias=st.booleans(),
    adjusted=st.booleans(),
    trusted=st.sampled_from((1, 4, 7)),
    seed=st.integers(0, 2**32 - 1),
)
"""Head problems over all shapes and losses."""


def assert_near(actual: Tensor, expected: Tensor, relative: float) -> None:
    """The largest error, measured by the largest expected entry.

    Entry by entry would ask more of a near-zero entry than rounding of its large terms allows.
    """
    assert actual.shape == expected.shape
    error = (actual.double() - expected.double()).abs().max().item()
    size = expected.double().abs().max().item()
    assert error <= relative * size + 1e-300, f"error {error:.3g} at size {size:.3g}"
