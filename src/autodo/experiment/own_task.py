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

from autodo.data import Examples, stratified_split
from autodo.data.checks import SharedImages, check_pair
from autodo.data.distort import Distortion
from autodo.data.label_file import read_labels
from autodo.errors import InputError
from autodo.experiment.task import Task

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
    if test.isdigit() and distortion is None:
        raise InputError(
            f"--test is the number {test}",
            "labels that are held out of a training set are as messy as the rest of it",
            "name a test set; a number goes with --distortion of a clean set",
        )
    whole, where = load(train, "train"), None
    if test.isdigit():
        where, held = stratified_split(whole.labels, int(test), seed=HELD_OUT)
        whole, final = whole.subset(where), whole.subset(held)
    else:
        final = load(test, "test")
    size = int(trusted) if trusted.isdigit() else None
    if size is not None and distortion is None and true_labels is None:
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
    kind = None if distortion is None else Distortion.parse(distortion)
    truth = None if true_labels is None else read_labels(true_labels, None)
    if truth is not None and len(truth) != len(whole):
        raise InputError(
            f"'{true_labels}' has {len(truth):,} labels and train has {len(whole):,} examples",
            "there must be one for each, in the order of train",
            "check that the file belongs to this set",
        )

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
    about = {
        "train": len(first.train),
        "trusted": len(first.trusted),
        "test": len(first.test),
        "classes": list(whole.class_names),
        "distortion": distortion,
        "fingerprint": _fingerprint(first),
    }
    return make, about


def _fingerprint(task: Task) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for data in (task.train, task.trusted, task.test):
        digest.update(data.labels.numpy().tobytes())
        digest.update("\n".join(data.ids).encode())
    return digest.hexdigest()
