"""The sets of a cell: split first, then distort what is left to train on.

The trusted split keeps the original mix of classes and the right labels; the training set
loses the rare classes and gets wrong labels. Table 5 puts the test set in the trusted one's
place, Table 6 all training data in the place of both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autodo.data import Examples, stratified_split
from autodo.data.distort import Distortion
from autodo.data.sources import load
from autodo.data.split import TRUSTED_SIZES
from autodo.experiment.paper.cells import Cell
from autodo.experiment.paper.protocol import Scale
from autodo.experiment.task import Task
from autodo.train.progress import counting


def load_pair(
    dataset: str, *, scale: Scale, data_dir: str | Path | None, progress: bool
) -> tuple[Examples, Examples]:
    """Training and test set of a data set by name, whole but for the classes of the scale."""
    sets: list[Examples] = []
    for split in ("train", "test"):
        with counting(progress, f"reading {dataset} {split}") as bar:
            task = bar.add_task(split, total=None)

            def tell(done: int, total: int, bar: Any = bar, task: Any = task) -> None:
                bar.update(task, completed=done, total=total)

            data = load(
                dataset,
                split,
                data_dir=data_dir,
                name=f"{dataset} {split}",
                image_size=scale.image_size,
                channels=3,
                progress=tell,
                class_names=sets[0].class_names if sets else None,
            )
        sets.append(data)
    train, test = (_fewer_classes(data, scale.classes) for data in sets)
    return train, test


def make_task(cell: Cell, train: Examples, test: Examples, *, scale: Scale, seed: int) -> Task:
    """Train, trusted and test of one seed of a cell."""
    size = scale.trusted or TRUSTED_SIZES[cell.dataset]
    if scale.train is not None:
        train = _subset(train, scale.train + size, seed)
    if scale.test is not None:
        test = _subset(test, scale.test, seed)
    if cell.lambda_from == "train":
        train, true_labels = _distorted(train, cell.distortion, seed)
        return Task(train=train, trusted=train, test=test, true_labels=true_labels)
    rest, picked = stratified_split(train.labels, size, seed=seed)
    trusted = test if cell.lambda_from == "test" else train.subset(picked)
    train, true_labels = _distorted(train.subset(rest), cell.distortion, seed)
    return Task(train=train, trusted=trusted, test=test, true_labels=true_labels)


def _distorted(train: Examples, distortion: str, seed: int) -> tuple[Examples, Tensor]:
    """The set with imbalance and noise, and the labels of what is left before the noise."""
    kept, noisy = Distortion.parse(distortion).apply(train.labels, train.num_classes, seed)
    left = train.subset(kept)
    return left.with_labels(noisy), left.labels


def _subset(data: Examples, size: int, seed: int) -> Examples:
    if size >= len(data):
        return data
    _, picked = stratified_split(data.labels, size, seed=seed)
    return data.subset(picked)


def _fewer_classes(data: Examples, classes: int | None) -> Examples:
    """The points of at most ``classes`` classes, evenly spaced, numbered anew."""
    if classes is None or classes >= data.num_classes:
        return data
    kept = torch.linspace(0, data.num_classes - 1, classes).round().long()
    number = torch.full((data.num_classes,), -1)
    number[kept] = torch.arange(classes)
    labels = number[data.labels.cpu()]
    index = (labels >= 0).nonzero().flatten()
    chosen = data.subset(index)
    return Examples(
        images=chosen.images,
        labels=labels[index],
        class_names=tuple(data.class_names[c] for c in kept.tolist()),
        ids=chosen.ids,
    )
