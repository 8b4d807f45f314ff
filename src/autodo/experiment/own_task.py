"""A task from what a user has: sets in any layout, and, to try methods out, distortions of a clean
one with part of it trusted.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autodo.data import Examples, stratified_split
from autodo.data.checks import SharedImages, check_pair
from autodo.data.distort import Distortion
from autodo.data.label_file import read_labels
from autodo.data.labels import check_range
from autodo.data.sources import DIGITS, NAMED
from autodo.errors import InputError
from autodo.experiment.task import Task
from autodo.fitting import describe

HELD_OUT = 1
"""Seed of the points that are held out for choosing, whatever that of the task."""

Load = Callable[[str, str], Examples]
"""From a source and what errors call it to a set."""


def task_maker(
    load: Load,
    train: str,
    trusted: str,
    test: str,
    *,
    distortion: str | None = None,
    true_labels: Path | None = None,
) -> tuple[Callable[[int], Task], dict[str, Any]]:
    """A function from the seed to the task, and what identifies the data.

    ``trusted`` is a set, or a number of points that are taken out of train, stratified, before the
    rest is distorted. With a distortion ``test`` may be a number as well: points taken out of train
    before all else, the same for every seed, on which settings can be chosen without the test set.
    ``true_labels`` is a file of the training labels as they should be.
    """
    if test.isdecimal() and distortion is None:
        raise InputError(
            f"--test is the number {test}",
            "labels that are held out of a training set are as messy as the rest of it",
            "name a test set; a number goes with --distortion of a clean set",
        )
    whole, where = load(train, "train"), None
    kind = None if distortion is None else Distortion.parse(distortion)
    if kind is not None and kind.labels is not None:
        check_truth(read_labels(kind.labels, kind.labels_key), whole, f"'{kind.labels}'")
    if test.isdecimal():
        where, held = stratified_split(whole.labels, int(test), seed=HELD_OUT)
        whole, final = whole.subset(where), whole.subset(held)
    else:
        final = load(test, "test")
    size = int(trusted) if trusted.isdecimal() else None
    published = train.partition(":")[0] in (*NAMED, DIGITS)
    if size is not None and distortion is None and true_labels is None and not published:
        warnings.warn(
            f"the {size:,} trusted points are taken out of train, with the labels they have there: "
            "all methods take these for right, so name a trusted set if train's are not",
            stacklevel=2,
        )
    given = None if size is not None else load(trusted, "trusted")
    if distortion is not None and true_labels is not None:
        raise InputError(
            "both --distortion and --true-labels are given",
            "a set that is distorted here has its own labels for the truth",
            "give one of the two",
        )
    truth = None
    if true_labels is not None:
        truth = read_labels(true_labels, None)
        check_truth(truth, whole, f"'{true_labels}'")

    def make(seed: int) -> Task:
        index, known, chosen, positions = torch.arange(len(whole)), truth, given, where
        if size is not None:
            index, picked = stratified_split(whole.labels, size, seed=seed)
            chosen, positions = whole.subset(picked), index if where is None else where[index]
            if known is not None:
                chosen, known = chosen.with_labels(known[picked]), known[index]
        assert chosen is not None
        labels = whole.labels[index]
        if kind is not None:
            kept, noisy = kind.apply(labels, whole.num_classes, seed, positions=positions)
            index, known, labels = index[kept], labels[kept], noisy
        # Pixels are copied at the end only, and not where all stay: of SVHN they are 200 MB.
        pool = whole if len(index) == len(whole) else whole.subset(index)
        return Task(train=pool.with_labels(labels), trusted=chosen, test=final, true_labels=known)

    first = make(0)
    for warning in check_pair(first.train, first.trusted, test=first.test):
        warnings.warn(warning, SharedImages, stacklevel=2)
    return make, {**identified(first), "distortion": distortion}


def check_truth(truth: Tensor, train: Examples, called: str) -> None:
    """Refuse labels (N,) that cannot be others of the examples of train."""
    if len(truth) != len(train):
        raise InputError(
            f"{called} has {len(truth):,} labels and train has {len(train):,} examples",
            "there must be one for each, in the order of train",
            "check that the file belongs to this set",
        )
    check_range(truth, train.num_classes, name=called)


def identified(task: Task) -> dict[str, Any]:
    """Sizes, classes and fingerprints: what runs of one table must have in common."""
    about = describe({"train": task.train, "trusted": task.trusted, "test": task.test})
    if task.true_labels is not None:
        truth = hashlib.blake2b(task.true_labels.numpy().tobytes(), digest_size=16)
        about["true_labels"] = truth.hexdigest()
    return about
