"""The soft-label sub-model g_S: what each point's label should be, q = softmax(S).

S starts so that q is exactly the smoothed given label (1 - alpha) onehot(y) + alpha / C:

    S = (onehot(y) - 1/2) log(1 - C + C / alpha)

The paper prints log(1 - C - C/alpha), the logarithm of a negative number: a slip of sign.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autodo.errors import InputError
from autodo.hyper.rounded import RoundedTable
from autodo.hyper.table import Table
from autodo.hyper.top import TopTable

STORAGES = ("float32", "bfloat16", "top-k")
"""How the table of S is stored: as it is, rounded at random, or its largest logits alone."""


def initial_label_logits(
    labels: Tensor,
    num_classes: int,
    smoothing: float = 0.1,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """S of every point: (N, C).

    >>> initial_label_logits(torch.tensor([1]), 4).softmax(-1)
    tensor([[0.0250, 0.9250, 0.0250, 0.0250]])
    """
    high = initial_logit(num_classes, smoothing)
    shape = len(labels), num_classes
    # In place: one-hot labels of a million points and a thousand classes are 10 GB of integers,
    # and scatter_ makes copies of a table in bfloat16.
    logits = torch.full(shape, -high, dtype=dtype, device=labels.device)
    logits[torch.arange(len(labels), device=labels.device), labels] = high
    return logits


def initial_logit(num_classes: int, smoothing: float) -> float:
    """S of the given label; that of every other class is its negative."""
    if not 0 < smoothing < 1:
        raise InputError(
            f"label smoothing is {smoothing}",
            "soft labels need 0 < smoothing < 1 (0 would put S at infinity, 1 forgets the label)",
            "use 0.1, the paper's value",
        )
    return 0.5 * math.log(1 - num_classes + num_classes / smoothing)


def label_table(
    labels: Tensor,
    num_classes: int,
    *,
    smoothing: float = 0.1,
    storage: str = "float32",
    top: int = 8,
    optimizer: str = "table",
    dtype: torch.dtype = torch.float32,
    host: bool = False,
) -> Table:
    """The table of S at its start, stored as one of STORAGES; "float32" is of type ``dtype``.

    >>> table = label_table(torch.tensor([1]), 4, storage="top-k", top=2)
    >>> table.gather(torch.tensor([0])).softmax(-1)
    tensor([[0.0250, 0.9250, 0.0250, 0.0250]])
    """
    if storage == "top-k":
        high = initial_logit(num_classes, smoothing)
        return TopTable(
            labels, num_classes, top=top, high=high, low=-high,
            optimizer=optimizer, dtype=dtype, host=host,
        )  # fmt: skip
    if storage == "bfloat16":
        rows = initial_label_logits(labels, num_classes, smoothing, torch.bfloat16)
        return RoundedTable(rows, optimizer, host=host, copy=False)
    if storage == "float32":
        rows = initial_label_logits(labels, num_classes, smoothing, dtype)
        return Table(rows, optimizer, host=host, copy=False)
    raise InputError(
        f"labels cannot be stored as {storage!r}",
        f"the storages are {', '.join(STORAGES)}",
        'use "float32", the default',
    )
