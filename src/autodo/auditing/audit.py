"""``autodo.audit``: embeddings and labels in, the points table out.

What is learned rests on at most FIT_POINTS of the training points; what holds for the others
follows from one pass over them in chunks. So memory does not grow with the number of points, save
for the columns of the table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from autodo.auditing.belief import learn
from autodo.auditing.embeddings import LabelledEmbeddings, Scale, as_embeddings, check_together
from autodo.auditing.worth import Worth
from autodo.data.labels import default_names
from autodo.data.named_labels import number
from autodo.data.randomness import generator_for
from autodo.errors import InputError
from autodo.hyper.reweight import weights
from autodo.train.progress import counting

FIT_POINTS = 200_000
"""Training points that the heads learn from, at the most."""
SAMPLE = 1000
"""Purpose of the random numbers that choose them."""


def audit(
    embeddings: Any,
    labels: Any,
    trusted_embeddings: Any,
    trusted_labels: Any,
    *,
    num_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    rounds: int = 2,
    folds: int = 5,
    weight_lr: float = 0.1,
    seed: int = 0,
    progress: bool = True,
) -> pa.Table:
    """Which labels are probably wrong, from frozen features: no images, no network to train.

    Args:
        embeddings: (N, D) floats, an array, a tensor or a map of a file (``numpy.load(path,
            mmap_mode="r")``), read in chunks.
        labels: (N,) class numbers or names, some of them wrong.
        trusted_embeddings, trusted_labels: (M, D) and (M,), right, at least one of each class.
        num_classes, class_names: of the labels; by default one more than the largest label, or the
            names that occur, in alphabetical order.
        ids: (N,) what the table calls the points; by default their position.
        rounds: how often heads learn from the labels that the belief gave.
        folds: of the cross-fit; what is believed of a point is by heads that have not seen it.
        weight_lr: how far the weight of a point of typical worth moves.
        seed: of everything random.
        progress: show a bar on a terminal.

    Returns:
        The points table of a run: index, id, given_label, suggested_label, label_score (the
        probability of the given label), is_label_issue, weight; where classes have names, these
        of the given and the suggested label too.

    Two clouds of points, one point of which has the label of the other cloud:

    >>> x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    >>> y = torch.arange(200) % 2
    >>> x[:, 0] += 8 * y
    >>> given = y.clone()
    >>> given[100] = 1
    >>> table = audit(x[20:], given[20:], x[:20], y[:20], progress=False)
    >>> [row["index"] for row in table.to_pylist() if row["is_label_issue"]]
    [80]
    """
    sets = {"train": labels, "trusted": trusted_labels}
    (labels, trusted_labels), class_names = number(sets, class_names)
    ids = None if ids is None else list(map(str, ids))
    train = as_embeddings(embeddings, labels, name="train", ids=ids)
    trusted = as_embeddings(trusted_embeddings, trusted_labels, name="trusted")
    names = check_together(train, trusted, num_classes=num_classes, class_names=class_names)
    _check_settings(rounds=rounds, folds=folds, weight_lr=weight_lr)
    # Heads know the classes that occur; every one of train occurs in trusted.
    classes = trusted.labels.unique()
    steps = rounds + 3 + math.ceil(len(train) / FIT_POINTS)
    with counting(progress, "auditing") as bar, torch.no_grad():
        task = bar.add_task("audit", total=steps)
        score, suggested, worth = _learn_and_judge(
            train,
            trusted,
            classes,
            rounds=rounds,
            folds=max(2, min(folds, len(trusted), len(train))),
            seed=seed,
            tell=lambda: bar.advance(task),
        )
    size = worth.square().mean().sqrt().clamp_min(torch.finfo(worth.dtype).tiny)
    columns = {
        "index": pa.array(np.arange(len(train))),
        "id": pa.array(map(str, range(len(train))) if ids is None else ids, pa.string()),
        "given_label": pa.array(train.labels.numpy()),
        "suggested_label": pa.array(suggested.numpy()),
        "label_score": pa.array(score.numpy()),
        "is_label_issue": pa.array((suggested != train.labels).numpy()),
        "weight": pa.array(weights(weight_lr * worth / size).numpy()),
    }
    if names != default_names(len(names)):
        called = pa.array(names)
        for kind in ("given", "suggested"):
            columns[f"{kind}_name"] = called.take(columns[f"{kind}_label"])
    return pa.table(columns).replace_schema_metadata({"class_names": "\n".join(names)})


def _learn_and_judge(
    train: LabelledEmbeddings,
    trusted: LabelledEmbeddings,
    classes: Tensor,
    *,
    rounds: int,
    folds: int,
    seed: int,
    tell: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Score, suggested label and worth, each (N,)."""
    generator = generator_for(seed, SAMPLE)
    sample = torch.randperm(len(train), generator=generator)[:FIT_POINTS].sort().values
    features = train.take(sample)
    trusted_features = trusted.take(torch.arange(len(trusted)))
    scale = Scale.of(torch.cat([features, trusted_features]))
    features, trusted_features = scale(features), scale(trusted_features)
    given = torch.searchsorted(classes, train.labels)
    right = torch.searchsorted(classes, trusted.labels)

    learned = learn(
        features, given[sample], trusted_features, right,
        folds=folds, rounds=rounds, seed=seed, tell=tell,
    )  # fmt: skip
    worth_of = Worth(learned, features, given[sample], trusted_features, right)
    tell()
    fold = torch.full((len(train),), -1)
    fold[sample] = learned.fold
    del features

    score, worth = torch.empty(len(train)), torch.empty(len(train))
    suggested = torch.empty(len(train), dtype=torch.int64)
    for rows, part in train.chunks():
        phi, y, k = scale(torch.from_numpy(part)), given[rows], fold[rows]
        log_q = learned.labels(learned.stacked.belief(phi, k), y)
        own = log_q.gather(-1, y[:, None])[:, 0]
        score[rows] = own.exp()
        # A tie is no evidence against the given label.
        suggested[rows] = torch.where(own >= log_q.amax(-1), y, log_q.argmax(-1))
        worth[rows] = worth_of(phi, log_q, k)
        if rows.start % FIT_POINTS < len(part):
            tell()
    return score, classes[suggested], worth


def _check_settings(*, rounds: int, folds: int, weight_lr: float) -> None:
    for name, value, least, usual in (
        ("rounds", rounds, 1, "2"),
        ("folds", folds, 2, "5"),
        ("weight_lr", weight_lr, 0, "0.1"),
    ):
        if not least <= value < math.inf:
            raise InputError(f"{name} is {value}", f"it must be {least} or more", f"use {usual}")
