"""The dataset as a model: g(lambda) = (augment A, weigh W, relabel S), one row per point.

``DatasetModel`` composes the three sub-models over their tables. A training loop asks it for
augmented images and for the loss; ``train.HyperOptimizer`` moves its rows.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autodo.errors import InputError
from autodo.hyper.augment import Augment
from autodo.hyper.relabel import label_table
from autodo.hyper.reweight import initial_weight_logits, weights
from autodo.hyper.symmetry import SYMMETRIES, turn
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
        symmetry: what is done to images before that: "none", "mirror", "flips" or "turns"
            (``hyper.symmetry``).
        shared_augment: one augmentation row for all points (the paper's A_SHA).
        optimizer: of the tables, "table" or "rmsprop".
        logit_adjustment: (C,) added to the logits inside the training loss, or None.
        dtype: of the rows.
        label_storage: of the soft labels' rows: "float32" (that is, ``dtype``), "bfloat16" or
            "top-k"; ``hyper.rounded`` and ``hyper.top`` say what the latter approximate.
        label_top: classes kept of each label in "top-k".
        tables_on: "device", or "host" for rows that stay in pinned host memory.

    ``transition`` (C, C) says how labels were given, row the true class, column the given label:
    the identity until noise is seen in them. ``doubt`` is the share of wrong ones that was expected
    when ``hyper.follow`` noted it, ``symmetry`` the place of the symmetry in ``SYMMETRIES``.

    >>> data = DatasetModel(torch.tensor([0, 1, 1]), num_classes=2)
    >>> data.weights(torch.tensor([2])), data.soft_labels(torch.tensor([2]))
    (tensor([1.]), tensor([[0.0500, 0.9500]]))
    """

    labels: Tensor
    logit_adjustment: Tensor | None
    transition: Tensor
    doubt: Tensor
    symmetry: Tensor

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
        symmetry: str = "none",
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
        if symmetry not in SYMMETRIES:
            raise InputError(
                f"there is no symmetry {symmetry!r}",
                "it says how images may be turned",
                f"choose one of {', '.join(SYMMETRIES)}",
            )
        self.num_classes = num_classes
        self.register_buffer("labels", labels.to(torch.int64))
        self.register_buffer("logit_adjustment", logit_adjustment)
        self.register_buffer("transition", torch.eye(num_classes if relabel else 0))
        self.register_buffer("doubt", torch.zeros(()))
        self.register_buffer("symmetry", torch.tensor(SYMMETRIES.index(symmetry)))
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

        Random numbers come from ``generator``, unless they are given as ``noise``; then images are
        as ``turned`` left them.
        """
        if self.augmentation is None:
            return images
        if noise is None:
            images = self.turned(images, generator)
        rows = self.table("augment").gather(index)
        return self.augmentation(images, rows, generator, noise=noise)

    def turned(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Images (B, C, H, W), each seen in one of the ways that their symmetry allows."""
        return turn(images, int(self.symmetry), generator)

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

    def set_given_labels(self, index: Tensor, smoothing: float) -> None:
        """Let the labels of ``index`` start from the given ones, smoothed towards their mix."""
        shares = torch.bincount(self.labels[index], minlength=self.num_classes) / len(index)
        for part in index.split(PART):  # a one-hot table of all points may not fit
            q = F.one_hot(self.labels[part], self.num_classes).float()
            self.set_soft_labels(part, q, smoothing, shares)

    def class_shares(
        self, points: int | Tensor | None = None, each: Tensor | None = None
    ) -> Tensor:
        """(C,) the mix of classes that points train on: w-weighted mean of q.

        ``points`` are the first so many, or those of an index (P,); unless told, all. ``each`` (P,)
        says how often each of the first so many is drawn, if not all are equally often.
        """
        points = len(self) if points is None else points
        index = points if isinstance(points, Tensor) else torch.arange(points)
        index = index.to(self.labels.device)
        total = torch.zeros(self.num_classes, device=self.labels.device)
        for part in index.split(PART):
            weights = self.weights(part) if each is None else self.weights(part) * each[part]
            total += weights @ self.soft_labels(part)
        return total / total.sum()

    def loss(self, logits: Tensor, index: Tensor) -> Tensor:
        """L = mean_i w_i l_i of a batch: the scalar a training loop descends.

        Computed in float32 whatever the logits' precision. Gradients reach the logits only:
        lambda is moved by the hypergradient, never by this loss.
        """
        log_p = self.log_p(logits)
        if self.relabel:
            log_q = F.log_softmax(self.label_logits(index), -1)
            losses = self.training_loss.value(log_p, log_q)
        else:
            losses = -log_p.gather(-1, self.labels[index][:, None])[:, 0]
        return (self.weights(index) * losses).mean()

    def given_loss(self, logits: Tensor, index: Tensor) -> Tensor:
        """The cross-entropy on the given labels, whatever was learned of them: a scalar."""
        return F.nll_loss(self.log_p(logits), self.labels[index])

    def log_p(self, logits: Tensor) -> Tensor:
        """log p (B, C) of logits, in float32 at least, in the mix of classes that is trained on."""
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
