"""The dataset as a model: g(lambda) = (augment A, weigh W, relabel S), one row per point.

``DatasetModel`` composes the three sub-models over their tables. A training loop asks it for
augmented images and for the loss; ``train.HyperOptimizer`` moves its rows.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autodo.errors import InputError
from autodo.hyper.augment import Augment
from autodo.hyper.relabel import label_table
from autodo.hyper.reweight import initial_weight_logits, weights
from autodo.hyper.table import PART, Table
from autodo.losses import CrossEntropy, Loss, get_loss

PLACES = ("device", "host")
"""Where the rows of the tables can be."""


LEAST = 1e-6
"""The least probability with which a class starts; its logarithm must be finite."""


class DatasetModel(nn.Module):
    """What is learned of a dataset of N points.

    Args:
        labels: (N,) the given labels.
        num_classes: C.
        augment: None, "affine", "colour" or "affine+colour", or an ``Augment``.
        reweight: learn a weight per point.
        relabel: learn a soft label per point; without it the given labels are hard and the
            training loss is the cross-entropy.
        loss: "symmetric_kl" (the paper's), "kl" or "cross_entropy", when labels are soft.
        smoothing: of the initial soft labels.
        shared_augment: one augmentation row for all points (the paper's A_SHA).
        optimizer: of the tables, "table" or "rmsprop".
        logit_adjustment: (C,) added to the logits inside the training loss, or None.
        dtype: of the rows.
        label_storage: of the soft labels' rows: "float32" (that is, ``dtype``), "bfloat16" or
            "top-k"; ``hyper.rounded`` and ``hyper.top`` say what the latter approximate.
        label_top: classes kept of each label in "top-k".
        tables_on: "device", or "host" for rows that stay in pinned host memory.

    ``transition`` (C, C) says how labels were given, row the true class, column the given label:
    the identity until noise is seen in them. ``follow`` uses it, ``settle`` uses ``doubt``.

    >>> data = DatasetModel(torch.tensor([0, 1, 1]), num_classes=2)
    >>> data.weights(torch.tensor([2])), data.soft_labels(torch.tensor([2]))
    (tensor([1.]), tensor([[0.0500, 0.9500]]))
    """

    labels: Tensor
    logit_adjustment: Tensor | None
    transition: Tensor
    doubt: Tensor

    def __init__(
        self,
        labels: Tensor,
        *,
        num_classes: int,
        augment: str | Augment | None = None,
        reweight: bool = True,
        relabel: bool = True,
        loss: str = "symmetric_kl",
        smoothing: float = 0.1,
        shared_augment: bool = False,
        optimizer: str = "table",
        logit_adjustment: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
        label_storage: str = "float32",
        label_top: int = 8,
        tables_on: str = "device",
    ) -> None:
        super().__init__()
        labels = torch.as_tensor(labels)
        check_labels(labels, num_classes)
        self.num_classes = num_classes
        self.register_buffer("labels", labels.to(torch.int64))
        self.register_buffer("logit_adjustment", logit_adjustment)
        self.register_buffer("transition", torch.eye(num_classes if relabel else 0))
        self.register_buffer("doubt", torch.zeros(()))
        self.reweight, self.relabel = reweight, relabel
        self.augmentation = Augment(augment) if isinstance(augment, str) else augment
        self.training_loss: Loss = get_loss(loss) if relabel else CrossEntropy()
        self.tables = nn.ModuleDict()
        if tables_on not in PLACES:
            raise InputError(
                f"tables cannot be on {tables_on!r}",
                f"the places are {', '.join(PLACES)}",
                'use "device", the default',
            )
        host = tables_on == "host"
        if self.augmentation is not None:
            row = self.augmentation.initial_row().to(dtype)
            rows = row.expand(1 if shared_augment else len(labels), -1)
            self.tables["augment"] = Table(rows, optimizer, shared=shared_augment, host=host)
        if reweight:
            rows = initial_weight_logits(len(labels), dtype)
            self.tables["weight"] = Table(rows, optimizer, host=host)
        if relabel:
            self.tables["label"] = label_table(
                self.labels.cpu() if host else self.labels, num_classes, smoothing=smoothing,
                storage=label_storage, top=label_top, optimizer=optimizer, dtype=dtype, host=host,
            )  # fmt: skip

    def __len__(self) -> int:
        return len(self.labels)

    def table(self, name: str) -> Table:
        """The table "augment", "weight" or "label"."""
        table = self.tables[name]
        assert isinstance(table, Table)
        return table

    def noise(self, count: int, generator: torch.Generator | None = None) -> Tensor | None:
        """The random numbers with which ``count`` images are augmented, where any are."""
        return None if self.augmentation is None else self.augmentation.noise(count, generator)

    def augment(
        self,
        images: Tensor,
        index: Tensor,
        generator: torch.Generator | None = None,
        *,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Images (B, C, H, W) of the points ``index``, each augmented by its own row.

        Random numbers come from ``generator``, unless they are given as ``noise``.
        """
        if self.augmentation is None:
            return images
        rows = self.table("augment").gather(index)
        return self.augmentation(images, rows, generator, noise=noise)

    def weight_logits(self, index: Tensor) -> Tensor:
        """W: (B,)."""
        if not self.reweight:
            return torch.zeros(len(index), device=self.labels.device)
        return self.table("weight").gather(index)[:, 0]

    def label_logits(self, index: Tensor) -> Tensor:
        """S: (B, C). Only where labels are learned."""
        return self.table("label").gather(index)

    def weights(self, index: Tensor) -> Tensor:
        """w: (B,), 1 at the start."""
        return weights(self.weight_logits(index))

    def soft_labels(self, index: Tensor) -> Tensor:
        """q: (B, C); one-hot where labels are not learned."""
        if self.relabel:
            return self.label_logits(index).softmax(-1)
        return F.one_hot(self.labels[index], self.num_classes).float()

    def set_soft_labels(
        self, index: Tensor, q: Tensor, smoothing: float, toward: Tensor | None = None
    ) -> None:
        """Let the labels of ``index`` start anew from q (B, C), smoothed as given labels are.

        ``toward`` (C,) is the mix of classes in which smoothing adds to a label; unless told, all
        classes equally.
        """
        added = 1 / self.num_classes if toward is None else toward
        smooth = (1 - smoothing) * q + smoothing * added
        self.table("label").assign(index, smooth.clamp_min(LEAST).log())

    @torch.no_grad()
    def follow(self, index: Tensor, logits: Tensor, rate: float | Tensor) -> None:
        """Move the labels of ``index`` part of the way to what a network itself makes of them.

        ``logits`` (B, C) say what it believes, p; with the noise T of the labels y that is

            log q  <-  (1 - rate) log q + rate (log p + log T[:, y])

        up to a constant. Where no noise was seen labels stay.

        >>> data = DatasetModel(torch.tensor([0]), num_classes=2, smoothing=0.4)
        >>> _ = data.transition.copy_(torch.tensor([[0.9, 0.1], [0.1, 0.9]]))
        >>> data.follow(torch.tensor([0]), torch.tensor([[0.02, 0.98]]).log(), rate=0.5)
        >>> data.soft_labels(torch.tensor([0]))
        tensor([[0.4615, 0.5385]])
        """
        log_t = self.transition.clamp_min(LEAST).log().T[self.labels[index]]
        believed = F.log_softmax(self._log_p(logits) + log_t, -1).clamp_min(math.log(LEAST))
        self.table("label").blend(index, believed, rate * self._noisy().to(believed.dtype))

    def note_doubt(self, points: int) -> None:
        """Keep in ``doubt`` how many of the first ``points`` labels are expected to be wrong."""
        self.doubt.copy_(torch.sigmoid(-self._odds(points)).mean())

    @torch.no_grad()
    def settle(self, points: int) -> None:
        """Let as many of the first ``points`` labels be wrong as were when ``doubt`` was noted.

        Labels that follow a network which learns from them count the given label more than once.
        All given labels lose or gain the same in log-odds, so that their ranking stays. Where no
        noise was seen labels stay.

        >>> data = DatasetModel(torch.tensor([0, 0]), num_classes=2)
        >>> _ = data.transition.copy_(torch.tensor([[0.8, 0.2], [0.2, 0.8]]))
        >>> data.set_soft_labels(torch.tensor([0, 1]), torch.tensor([[0.3, 0.7], [0.9, 0.1]]), 0.0)
        >>> data.note_doubt(2)
        >>> data.set_soft_labels(torch.tensor([0, 1]), torch.tensor([[0.5, 0.5], [0.9, 0.1]]), 0.0)
        >>> data.settle(2)
        >>> data.soft_labels(torch.tensor([0, 1]))
        tensor([[0.3631, 0.6369],
                [0.8369, 0.1631]])
        """
        odds = self._odds(points)
        low, high = torch.full_like(self.doubt, -20.0), torch.full_like(self.doubt, 20.0)
        for _ in range(40):
            middle = (low + high) / 2
            enough = torch.sigmoid(-odds - middle).mean() > self.doubt
            low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
        shift = (low + high) / 2 * self._noisy()
        for part in torch.arange(points, device=self.labels.device).split(PART):
            given = F.one_hot(self.labels[part], self.num_classes)
            self.table("label").assign(part, self.label_logits(part) + shift * given)

    def _noisy(self) -> Tensor:
        """Whether noise was seen; not asked for by the host, which a recorded step could not."""
        return self.transition.diagonal().min() < 1

    def _odds(self, points: int) -> Tensor:
        """log q / (1 - q) of the first ``points`` given labels, in float64: (points,)."""
        found = []
        for part in torch.arange(points, device=self.labels.device).split(PART):
            log_q = F.log_softmax(self.label_logits(part).double(), -1)
            found.append(log_q.gather(-1, self.labels[part][:, None])[:, 0])
        log_q = torch.cat(found)
        return log_q - torch.log(-torch.expm1(log_q)).clamp_min(-50.0)

    def class_shares(self, points: int | Tensor | None = None) -> Tensor:
        """(C,) the mix of classes that points train on: w-weighted mean of q.

        ``points`` are the first so many, or those of an index (P,); unless told, all.
        """
        points = len(self) if points is None else points
        index = points if isinstance(points, Tensor) else torch.arange(points)
        index = index.to(self.labels.device)
        total = torch.zeros(self.num_classes, device=self.labels.device)
        for part in index.split(PART):
            total += self.weights(part) @ self.soft_labels(part)
        return total / total.sum()

    def loss(self, logits: Tensor, index: Tensor) -> Tensor:
        """L = mean_i w_i l_i of a batch: the scalar a training loop descends.

        Computed in float32 whatever the logits' precision. Gradients reach the logits only:
        lambda is moved by the hypergradient, never by this loss.
        """
        log_p = self._log_p(logits)
        if self.relabel:
            log_q = F.log_softmax(self.label_logits(index), -1)
            losses = self.training_loss.value(log_p, log_q)
        else:
            losses = -log_p.gather(-1, self.labels[index][:, None])[:, 0]
        return (self.weights(index) * losses).mean()

    def given_loss(self, logits: Tensor, index: Tensor) -> Tensor:
        """The cross-entropy on the given labels, whatever was learned of them: a scalar."""
        return F.nll_loss(self._log_p(logits), self.labels[index])

    def _log_p(self, logits: Tensor) -> Tensor:
        logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
        if self.logit_adjustment is not None:
            logits = logits + self.logit_adjustment
        return F.log_softmax(logits, -1)


def check_labels(labels: Tensor, num_classes: int) -> None:
    """Raise unless labels are integers in 0 .. num_classes - 1, one per point."""
    if labels.ndim != 1 or len(labels) == 0:
        raise InputError(
            f"labels have shape {tuple(labels.shape)}",
            "one integer per training point is needed",
            "pass a tensor of shape (N,); for one-hot rows pass labels.argmax(1)",
        )
    if labels.dtype == torch.bool or labels.is_floating_point() or labels.is_complex():
        raise InputError(
            f"labels are {labels.dtype}", "class labels are integers", "convert with labels.long()"
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= num_classes:
        bad = int(((labels < 0) | (labels >= num_classes)).nonzero()[0])
        raise InputError(
            f"label {int(labels[bad])} at index {bad} is out of range",
            f"with {num_classes} classes the labels are 0 .. {num_classes - 1}",
            "correct the label, or pass the right num_classes",
        )
