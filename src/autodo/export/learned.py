"""lambda.safetensors: the learned rows of every training example, for other trainers.

Tensors: labels (N,) as given; where they were learned weight_logits (N,), label_logits (N, C) and
augment_rows (N, 2A), or (1, 2A) where all points share one. w = softplus(W) / ln 2 and
q = softmax(S).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save as save_tensors
from torch import Tensor

from autodo.config import Config
from autodo.errors import InputError, RunFolderError
from autodo.hyper.augment import Augment
from autodo.hyper.dataset_model import DatasetModel
from autodo.hyper.reweight import weights
from autodo.hyper.symmetry import SYMMETRIES
from autodo.train.files import atomic, readable

FILE = "lambda.safetensors"
NOTHING = -40.0
"""A weight logit whose weight is 0 to every digit of float32: softplus(-40) is 4e-18."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Learned:
    """What a run learned of its N training examples."""

    labels: Tensor
    """(N,) as they were given."""
    num_classes: int
    weight_logits: Tensor | None = None
    """W, (N,)."""
    label_logits: Tensor | None = None
    """S, (N, C)."""
    augment_rows: Tensor | None = None
    """A, (N, 2A) or (1, 2A)."""
    augment: str = "none"
    """The kind of augmentation of the rows."""
    magnitude: float = 5.0
    """M of the rows."""
    symmetry: str = "none"
    """What is done to images before that."""

    @classmethod
    def of(cls, data: DatasetModel, count: int) -> Learned:
        """The rows of the first ``count`` points, which are the training examples."""

        def rows(name: str) -> Tensor | None:
            if name not in data.tables:
                return None
            return data.table(name).values(count)

        weight = rows("weight")
        return cls(
            labels=data.labels[:count].cpu().clone(),
            num_classes=data.num_classes,
            weight_logits=None if weight is None else weight[:, 0].clone(),
            label_logits=rows("label"),
            augment_rows=rows("augment"),
            augment="none" if data.augmentation is None else data.augmentation.kind,
            magnitude=5.0 if data.augmentation is None else data.augmentation.magnitude,
            symmetry=SYMMETRIES[int(data.symmetry)],
        )

    def save(self, run: str | Path) -> Path:
        """Write lambda.safetensors into the folder ``run``."""
        named = {
            "labels": self.labels,
            "weight_logits": self.weight_logits,
            "label_logits": self.label_logits,
            "augment_rows": self.augment_rows,
        }
        about = {
            "num_classes": str(self.num_classes),
            "augment": self.augment,
            "magnitude": str(self.magnitude),
            "symmetry": self.symmetry,
        }
        path = Path(run) / FILE
        tensors = {k: v.contiguous() for k, v in named.items() if v is not None}
        with atomic(path) as file:
            file.write(save_tensors(tensors, metadata=about))
        return path

    @classmethod
    def load(cls, run: str | Path) -> Learned:
        """What ``save`` wrote into the folder ``run``."""
        path = Path(run) / FILE
        if not path.is_file():
            raise RunFolderError(
                f"there is no {FILE} in '{run}'",
                "the run is not finished, was written by an older version, or is no run",
                "check the path, or finish the run with --resume",
            )
        with readable(path):
            with safe_open(path, "pt") as file:
                about = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return cls(
                labels=tensors["labels"],
                num_classes=int(about["num_classes"]),
                weight_logits=tensors.get("weight_logits"),
                label_logits=tensors.get("label_logits"),
                augment_rows=tensors.get("augment_rows"),
                augment=about["augment"],
                magnitude=float(about["magnitude"]),
                symmetry=about.get("symmetry", "none"),
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def weights(self) -> Tensor:
        """w: (N,), 1 where weights were not learned."""
        if self.weight_logits is None:
            return torch.ones(len(self))
        return weights(self.weight_logits)

    @property
    def soft_labels(self) -> Tensor:
        """q: (N, C), one-hot where labels were not learned."""
        if self.label_logits is None:
            return F.one_hot(self.labels, self.num_classes).float()
        return self.label_logits.softmax(-1)

    @property
    def augmentation(self) -> Augment | None:
        """What applies the rows."""
        return None if self.augment == "none" else Augment(self.augment, self.magnitude)

    def decided(
        self, labels: Tensor, usable: Tensor, reviewed: Tensor, smoothing: float
    ) -> Learned:
        """With a person's decisions: ``labels`` (N,) where ``reviewed``, no weight if not usable.

        A label that a person chose is as sure as a trusted one and is smoothed like it.
        """
        logits = self.label_logits
        if logits is None:
            logits = _smoothed(self.labels, self.num_classes, smoothing)
        logits = torch.where(
            reviewed[:, None], _smoothed(labels, self.num_classes, smoothing).to(logits), logits
        )
        nothing = torch.full((len(self),), NOTHING)
        W = torch.zeros(len(self)) if self.weight_logits is None else self.weight_logits
        W = torch.where(usable, W, nothing.to(W))
        return dataclasses.replace(self, label_logits=logits, weight_logits=W)

    def config(self, config: Config) -> Config:
        """``config`` for training on these rows as they are: none of them is learned again."""
        augment: dict[str, Any] = {}
        if self.augment_rows is not None:
            augment = {
                "magnitude": self.magnitude,
                "shared_augment": len(self.augment_rows) == 1 < len(self),
            }
        return dataclasses.replace(
            config,
            learn_weights=self.weight_logits is not None,
            learn_labels=self.label_logits is not None,
            augment=self.augment,
            symmetry=self.symmetry,
            belief_folds=0,  # its belief is what these labels are made of
            start_epoch=config.epochs,  # lambda's own steps begin after the last epoch
            **augment,
        )

    def into(self, data: DatasetModel, count: int) -> None:
        """Put the rows into the first ``count`` points of ``data``, which ``config`` shaped."""
        if len(self) != count or not torch.equal(self.labels, data.labels[:count].cpu()):
            raise InputError(
                f"lambda was learned of {len(self)} training examples, and train has {count}"
                if len(self) != count
                else "lambda was learned of examples with other labels than train has",
                "every row belongs to one example, by its place in the set",
                "give the training set of that run, in the same order",
            )
        for name, rows in (
            ("weight", None if self.weight_logits is None else self.weight_logits[:, None]),
            ("label", self.label_logits),
            ("augment", self.augment_rows),
        ):
            if rows is not None:
                data.table(name).assign(torch.arange(len(rows)), rows)


def _smoothed(labels: Tensor, num_classes: int, smoothing: float) -> Tensor:
    """Label logits (N, C) of hard labels."""
    hard = F.one_hot(labels, num_classes).float()
    return ((1 - smoothing) * hard + smoothing / num_classes).log()
