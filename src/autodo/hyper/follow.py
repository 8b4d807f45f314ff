"""Labels that follow the network which learns from them, as far as their noise lets them.

``follow`` is one visit; after the last ``settle`` brings the doubt in labels back to what
``note_doubt`` found before the first. Where no noise was seen in the given labels
(``DatasetModel.transition``) all labels stay as they are.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from autodo.hyper.dataset_model import LEAST, DatasetModel
from autodo.hyper.table import PART

LARGEST_SHIFT = 20.0
"""Of log-odds, when labels settle."""
ROUNDING = 1e-6
"""Of a transition that is the mean over many folds without noise."""


@torch.no_grad()
def follow(data: DatasetModel, index: Tensor, logits: Tensor, rate: float | Tensor) -> None:
    """Move the labels of ``index`` part of the way to what a network itself makes of them.

    ``logits`` (B, C) say what it believes, p; with the noise T of the labels y that is

        log q  <-  (1 - rate) log q + rate (log p + log T[:, y])

    up to a constant.

    >>> data = DatasetModel(torch.tensor([0]), num_classes=2, smoothing=0.4)
    >>> _ = data.transition.copy_(torch.tensor([[0.9, 0.1], [0.1, 0.9]]))
    >>> follow(data, torch.tensor([0]), torch.tensor([[0.02, 0.98]]).log(), rate=0.5)
    >>> data.soft_labels(torch.tensor([0]))
    tensor([[0.4615, 0.5385]])
    """
    log_t = data.transition.T[data.labels[index]].clamp_min(LEAST).log()
    believed = F.log_softmax(data.log_p(logits) + log_t, -1).clamp_min(math.log(LEAST))
    data.table("label").blend(index, believed, rate * _noisy(data).to(believed.dtype))


@torch.no_grad()
def note_doubt(data: DatasetModel, points: int) -> None:
    """Keep in ``data.doubt`` how many of the first ``points`` labels are expected to be wrong."""
    data.doubt.copy_(torch.sigmoid(-_odds(data, points)).mean())


@torch.no_grad()
def settle(data: DatasetModel, points: int) -> None:
    """Let as many of the first ``points`` labels be wrong as were when ``doubt`` was noted.

    A network that has learned from labels repeats them, so that the given ones, on which they lean,
    count more than once. All given labels lose or gain the same in log-odds: their ranking stays.

    >>> data = DatasetModel(torch.tensor([0, 0]), num_classes=2)
    >>> _ = data.transition.copy_(torch.tensor([[0.8, 0.2], [0.2, 0.8]]))
    >>> both = torch.tensor([0, 1])
    >>> data.set_soft_labels(both, torch.tensor([[0.3, 0.7], [0.9, 0.1]]), 0.0)
    >>> note_doubt(data, 2)
    >>> data.set_soft_labels(both, torch.tensor([[0.5, 0.5], [0.9, 0.1]]), 0.0)
    >>> settle(data, 2)
    >>> data.soft_labels(both)
    tensor([[0.3631, 0.6369],
            [0.8369, 0.1631]])
    """
    odds = _odds(data, points)
    low = torch.full_like(data.doubt, -LARGEST_SHIFT)
    high = torch.full_like(data.doubt, LARGEST_SHIFT)
    for _ in range(40):
        middle = (low + high) / 2
        more = torch.sigmoid(-odds - middle).mean() > data.doubt
        low, high = torch.where(more, middle, low), torch.where(more, high, middle)
    shift = (low + high) / 2 * _noisy(data)
    for part in torch.arange(points, device=data.labels.device).split(PART):
        given = data.labels[part][:, None]
        rows = data.label_logits(part).scatter_add(1, given, shift.expand(len(part), 1))
        data.table("label").assign(part, rows)


def _noisy(data: DatasetModel) -> Tensor:
    """Whether noise was seen; the host does not ask for it, which a recorded step could not."""
    return data.transition.diagonal().min() < 1 - ROUNDING


def _odds(data: DatasetModel, points: int) -> Tensor:
    """log q / (1 - q) of the first ``points`` given labels, in float64: (points,)."""
    found = []
    for part in torch.arange(points, device=data.labels.device).split(PART):
        log_q = F.log_softmax(data.label_logits(part).double(), -1)
        found.append(log_q.gather(-1, data.labels[part][:, None])[:, 0])
    log_q = torch.cat(found)
    return log_q - torch.log(-torch.expm1(log_q)).clamp_min(-50.0)
