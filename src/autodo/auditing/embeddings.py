"""Embeddings as users bring them, checked, and read a chunk at a time.

Arrays may be mapped from the disk and larger than the memory: nothing here copies them whole.
Columns are standardised, so that one L2 penalty means the same for all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autodo.data import wording
from autodo.data.labels import as_labels, check_range, settle_names
from autodo.errors import InputError

FAR = 1000
"""Times as large as the median is the largest number of a row that is probably a mistake."""
CHUNK = 8192
"""Rows that are read at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledEmbeddings:
    """Embeddings (N, D) with a label each."""

    array: np.ndarray
    """(N, D) floats of any width, perhaps a map of a file."""
    labels: Tensor
    """(N,) int64."""
    name: str
    ids: Sequence[str] | None = None
    """N, what errors call the examples beside their place."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def width(self) -> int:
        return int(self.array.shape[1])

    def chunks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Some rows after the other as float32, with where they are."""
        for start in range(0, len(self), CHUNK):
            rows = slice(start, start + CHUNK)
            # A copy, for a map may be read-only; in one order, for sums depend on it.
            yield rows, np.array(self.array[rows], dtype=np.float32, order="C")

    def take(self, index: Tensor) -> Tensor:
        """The rows ``index``, ascending, as float32: (n, D)."""
        out = torch.empty(len(index), self.width)
        for part in range(0, len(index), CHUNK):
            rows = index[part : part + CHUNK].numpy()
            out[part : part + CHUNK] = torch.from_numpy(self.array[rows].astype(np.float32))
        return out


@dataclass(frozen=True)
class Scale:
    """Mean and deviation of each column."""

    mean: Tensor
    """(D,)"""
    deviation: Tensor
    """(D,); 1 where a column never changes."""

    @classmethod
    def of(cls, features: Tensor) -> Scale:
        """Of the rows of ``features`` (N, D).

        >>> scale = Scale.of(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        >>> scale(torch.tensor([[3.0, 5.0]]))
        tensor([[1., 0.]])
        """
        # In float64, for squares of large numbers overflow in float32.
        mean = features.mean(0, dtype=torch.float64)
        square = torch.zeros_like(mean)
        for part in features.split(CHUNK):
            square += (part - mean).square().sum(0)
        deviation = (square / len(features)).sqrt()
        # Relative to the mean: rounding alone gives a constant column some deviation.
        constant = deviation <= 1e-6 * mean.abs()
        return cls(mean.float(), torch.where(constant, 1.0, deviation).float())

    def __call__(self, features: Tensor) -> Tensor:
        return (features - self.mean) / self.deviation


def as_embeddings(
    embeddings: Any, labels: Any, *, name: str, ids: Sequence[str] | None = None
) -> LabelledEmbeddings:
    """Arrays, tensors or lists as LabelledEmbeddings; refuses what is no (N, D) of finite floats.

    ``name`` is what errors call the set.
    """
    array = embeddings.detach().cpu() if isinstance(embeddings, Tensor) else embeddings
    if isinstance(array, Tensor):
        array = array.float().numpy() if array.dtype == torch.bfloat16 else array.numpy()
    array = np.asanyarray(array)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise InputError(
            f"the embeddings of {name} are {array.dtype} of shape {array.shape}",
            "embeddings are one row of numbers per example, (N, D)",
            "flatten what has more axes: embeddings.reshape(len(embeddings), -1)"
            if array.ndim > 2
            else "give a two-dimensional array of floats",
        )
    if 0 in array.shape:
        raise InputError(
            f"the embeddings of {name} are empty: shape {array.shape}",
            "there is nothing to learn from",
            "check the file, or the filter that made this set",
        )
    numbers = as_labels(labels, name=name).cpu()
    if len(numbers) != len(array):
        raise InputError(
            f"{name} has {len(array):,} embeddings and {len(numbers):,} labels",
            "each embedding has one label",
            "give as many of each, in the same order",
        )
    if ids is not None and len(ids) != len(array):
        raise InputError(
            f"{len(ids):,} ids for {len(array):,} embeddings",
            "each point has one id",
            "give as many of each, or leave the ids out",
        )
    data = LabelledEmbeddings(array=array, labels=numbers, name=name, ids=ids)
    _check_finite(data)
    return data


def _check_finite(data: LabelledEmbeddings) -> None:
    first, count, largest = 0, 0, np.empty(len(data), np.float32)
    for rows, part in data.chunks():
        largest[rows] = np.maximum(part.max(1), -part.min(1))
        # The sum of a row is finite if all of it is, save where it overflows; so look again there.
        with np.errstate(over="ignore", invalid="ignore"):
            suspects = np.flatnonzero(~np.isfinite(part.sum(1)))
        bad = suspects[~np.isfinite(part[suspects]).all(1)]
        if len(bad) and not count:
            first = rows.start + int(bad[0])
        count += len(bad)
    if count:
        raise InputError(
            f"{wording.count(count, 'embedding')} of {data.name} with numbers that are not "
            f"finite, the first {wording.example(data.name, first, data.ids)}",
            "NaN or infinity came out of the network or the file (float16 overflows at 65,504)",
            "compute them again in float32, or drop those rows",
        )
    usual = float(np.median(largest))
    far = np.flatnonzero(largest / FAR > usual)
    if usual > 0 and len(far):
        warnings.warn(
            f"{wording.count(len(far), 'embedding')} of {data.name} with numbers more than "
            f"{FAR:,} times as large as usual, the first "
            f"{wording.example(data.name, int(far[0]), data.ids)}: columns are standardised, "
            "so that all others look alike beside them; drop those rows if they are mistakes",
            stacklevel=4,
        )


def check_together(
    train: LabelledEmbeddings,
    trusted: LabelledEmbeddings,
    *,
    num_classes: int | None,
    class_names: Sequence[str] | None,
) -> tuple[str, ...]:
    """Refuse sets that do not fit together; return the names of the classes."""
    if train.width != trusted.width:
        raise InputError(
            f"embeddings of train have {train.width} numbers but those of trusted {trusted.width}",
            "one head reads both, so one network must have made both",
            "compute both with the same network and layer",
        )
    both = torch.cat([train.labels, trusted.labels])
    names = settle_names(
        both, None, name="train and trusted", num_classes=num_classes, class_names=class_names
    )
    for data in (train, trusted):
        check_range(data.labels, len(names), name=data.name, ids=data.ids)
    ours, theirs = (set(data.labels.unique().tolist()) for data in (train, trusted))
    missing = sorted(ours - theirs)
    if len(theirs) < 2:
        raise InputError(
            f"trusted has only {wording.classes(sorted(theirs), names)}",
            "there is nothing to tell apart",
            "add trusted examples of the other classes",
        )
    if missing:
        few = len(trusted) < len(ours)
        raise InputError(
            f"trusted has {wording.count(len(trusted), 'example')} but train has "
            f"{len(ours)} classes"
            if few
            else f"train has {len(ours)} classes but trusted has {len(theirs & ours)} of them",
            f"no trusted example of {wording.classes(missing, names)}",
            "add trusted examples: one of each class at the least, better ten or more",
        )
    return names
