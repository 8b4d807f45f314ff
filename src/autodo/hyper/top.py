"""Label rows of which only the k largest logits are kept; all other classes share one value.

With a thousand classes a label is a question among few of them. A row (C,) is stored as

    classes (k,)    of which the first is the given label
    rows (k + 1,)   their logits, and the one of each class that is not among them

which is 52 bytes instead of 4,000 for C = 1000 and k = 8.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autodo.hyper.host_rows import read_rows, write_rows
from autodo.hyper.optimizers import check_saves_memory, make_optimizer
from autodo.hyper.table import PART, Table


class TopTable(Table):
    """A table of logits (N, C) that keeps the given label and the k - 1 largest others of a row.

    Exact: a row whose other classes are equal, as those of given labels are; the gradient and
    its scale, which are of all C classes; with k = C everything. Approximated: after a step, or
    an assignment, the k classes to keep are chosen anew, and the others get the one value that
    leaves their probability together what it was. So the kept classes have exactly the
    probabilities of the full row; only how the others share theirs is forgotten. A class that is
    not kept comes in when a step lifts it above the least one that is.

    Args:
        labels: (N,) the given labels.
        num_classes: C.
        top: k; all classes if there are fewer.
        high, low: initial logits of the given label and of every other class.

    >>> table = TopTable(torch.tensor([2]), 5, top=2, high=3.0, low=0.0)
    >>> table.assign(torch.tensor([0]), torch.tensor([[0.0, 4.0, 1.0, 0.0, 0.0]]))
    >>> table.classes, table.gather(torch.tensor([0]))
    (tensor([[2, 1]], dtype=torch.int16), tensor([[0., 4., 1., 0., 0.]]))
    """

    classes: Tensor

    def __init__(
        self,
        labels: Tensor,
        num_classes: int,
        *,
        top: int,
        high: float,
        low: float,
        optimizer: str = "table",
        dtype: torch.dtype = torch.float32,
        host: bool = False,
    ) -> None:
        self.num_classes, self.top = num_classes, min(top, num_classes)
        rows = torch.full((len(labels), self.top + 1), low, dtype=dtype, device=labels.device)
        rows[:, 0] = high
        super().__init__(rows, optimizer, host=host, copy=False)
        kind = torch.int16 if num_classes <= torch.iinfo(torch.int16).max else torch.int32
        # All others are alike: those after the given label are kept until a step tells.
        steps = torch.arange(self.top, device=labels.device)
        classes = labels.new_empty(len(labels), self.top, dtype=kind)
        for kept, part in zip(classes.split(PART), labels.split(PART), strict=True):
            kept.copy_((part[:, None] + steps) % num_classes)
        self.register_buffer("classes", classes)

    def use(self, optimizer: str) -> None:
        check_saves_memory(optimizer, "labels stored as top-k")
        like = torch.empty(0, self.num_classes, dtype=self.rows.dtype, device=self.rows.device)
        self.optimizer = make_optimizer(optimizer, like)

    @property
    def columns(self) -> int:
        return self.num_classes

    def _read(self, index: Tensor) -> Tensor:
        kept = read_rows(self.rows, index)
        classes = read_rows(self.classes, index).long()
        rows = kept[:, -1:].expand(-1, self.num_classes)
        return rows.scatter(1, classes, kept[:, :-1])

    def _write(self, index: Tensor, rows: Tensor) -> None:
        given = read_rows(self.classes, index)[:, :1].long()
        classes = rows.scatter(1, given, math.inf).topk(self.top).indices
        kept = torch.cat([rows.gather(1, classes), self._others(rows, classes)], 1)
        write_rows(self.rows, index, kept)
        write_rows(self.classes, index, classes.to(self.classes.dtype))

    def _others(self, rows: Tensor, classes: Tensor) -> Tensor:
        """log of the mean of exp over the classes that are not kept: (B, 1)."""
        count = self.num_classes - self.top
        if count == 0:
            return torch.zeros_like(rows[:, :1])
        others = rows.scatter(1, classes, -math.inf)
        # From the largest of them: where all are equal the result is their value to the bit.
        largest = others.amax(1, keepdim=True)
        return largest + ((others - largest).exp().sum(1, keepdim=True) / count).log()
