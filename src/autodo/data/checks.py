"""Every way in which a user's data can be unfit, found before a run begins.

:func:`open_dataset` looks at one dataset, :func:`check_pair` at how train,
trusted and test fit together. Both raise for what cannot work; what works but
flatters the result (one image in two sets) comes back as a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from autodo.data import wording
from autodo.data.columns import ColumnPairs, is_columnar
from autodo.data.duplicates import Pairs, shared_images
from autodo.data.examples import Examples
from autodo.data.labels import check_range, check_same_names, settle_names
from autodo.data.map_images import MapImages, Progress, read_dataset
from autodo.data.pixels import to_unit
from autodo.errors import InputError


def open_dataset(
    dataset: Any,
    *,
    name: str,
    num_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Examples | MapImages:
    """A dataset of (image, label), checked in full and ready for the loader.

    Examples, and tensors in a TensorDataset, come back as Examples. Anything else with
    ``len`` and indices has every item read once and comes back as MapImages, which reads
    items again on each access; a ``datasets.Dataset`` of the Hugging Face library too, by its
    image and label columns. ``name`` is what errors call it; ``progress(done, total)``
    is told of each item read.
    """
    examples = _in_memory(dataset, name)
    if examples is not None:
        labels = examples.labels
        names = settle_names(
            labels,
            examples.class_names,
            name=name,
            num_classes=num_classes,
            class_names=class_names,
        )
        return replace(examples, class_names=names, name=name)
    _check_map_style(dataset, name)
    if is_columnar(dataset):
        dataset = ColumnPairs(dataset, name=name)
    return read_dataset(
        dataset, name=name, num_classes=num_classes, class_names=class_names, progress=progress
    )


def _in_memory(dataset: Any, name: str) -> Examples | None:
    if isinstance(dataset, Examples):
        return dataset
    if isinstance(dataset, Subset):
        whole = _in_memory(dataset.dataset, name)
        return whole.subset(list(dataset.indices)) if whole is not None else None
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        return Examples.from_arrays(*dataset.tensors, name=name)
    return None


def _check_map_style(dataset: Any, name: str) -> None:
    kind = type(dataset).__name__
    if isinstance(dataset, DataLoader):
        raise InputError(
            f"{name} is a {kind}",
            "AutoDO draws its own batches, for it must know the index of every example",
            f"give the dataset itself: {name}.dataset",
        )
    iterable = isinstance(dataset, IterableDataset)
    if isinstance(dataset, dict):
        raise InputError(
            f"{name} is a {kind} of {wording.some(dataset)}",
            "several splits, of which one is meant",
            f"give one: {name}['train']",
        )
    lacks = [m for m in ("__len__", "__getitem__") if iterable or not hasattr(dataset, m)]
    if lacks:
        raise InputError(
            f"{name} is no map-style dataset: {kind} "
            + ("is an IterableDataset" if iterable else f"has no {' and no '.join(lacks)}"),
            "AutoDO learns about each example by its index, so it needs len(data) and data[i]",
            "give a map-style dataset of (image, label), or Examples.from_arrays(images, labels)",
        )
    if len(dataset) == 0:
        raise InputError(
            f"{name} is empty: {kind} has length 0",
            "there is nothing to learn from",
            "check the path, or the filter that made this set",
        )


FAR_ABOVE_ONE = 16.0
"""What pixels that were divided by 255, and perhaps standardised after, do not reach."""


class SharedImages(UserWarning):
    """The same images are in two sets."""


def check_pair(
    train: Examples | MapImages,
    trusted: Examples | MapImages,
    *,
    test: Examples | MapImages | None = None,
) -> list[str]:
    """Refuse sets that do not fit together; return warnings about images in two of them."""
    sets = {"train": train, "trusted": trusted} | ({"test": test} if test is not None else {})
    for name, data in list(sets.items())[1:]:
        _check_shape(train, data, name)
        _check_range_of_pixels(train, data, name)
        check_same_names(train.class_names, data.class_names, names=("train", name))
    _check_classes(train, trusted)
    if test is not None:
        check_range(test.labels, train.num_classes, name="test", ids=test.ids)

    return [
        _warning(one, other, sets, pairs)
        for (one, other), pairs in shared_images(sets).items()
        if pairs
    ]


def _check_shape(train: Examples | MapImages, data: Examples | MapImages, name: str) -> None:
    if train.image_shape != data.image_shape:
        channels = train.image_shape[0] != data.image_shape[0]
        raise InputError(
            f"images of train are {train.image_shape} but those of {name} are {data.image_shape} "
            "(channels, height, width)",
            "one model sees both, so they must have one shape",
            "convert both to the same number of channels (--channels)"
            if channels
            else "resize both to the same size (--image-size)",
        )


def _check_range_of_pixels(
    train: Examples | MapImages, data: Examples | MapImages, name: str
) -> None:
    """One set of 0 .. 255 as floats beside one of 0 .. 1, as whole numbers are read, is a slip."""
    if not (isinstance(train, Examples) and isinstance(data, Examples)):
        return
    high = [_highest(train), _highest(data)]
    if (high[0] > FAR_ABOVE_ONE) != (high[1] > FAR_ABOVE_ONE):
        called = name if high[1] > FAR_ABOVE_ONE else "train"
        raise InputError(
            f"pixels of train reach up to {high[0]:.4g} and those of {name} up to {high[1]:.4g}",
            "one network sees both (whole numbers of 0 .. 255 are read as 0 .. 1, others as they "
            "are)",
            f"divide the pixels of {called} by 255, or store them as whole numbers",
        )


def _highest(data: Examples) -> float:
    """The largest pixel of some of the images, as they are given to a network."""
    return float(to_unit(data.images[:1000].max()))


def _check_classes(train: Examples | MapImages, trusted: Examples | MapImages) -> None:
    ours, theirs = (set(data.labels.unique().tolist()) for data in (train, trusted))
    if len(ours) < 2:
        raise InputError(
            f"train has only {wording.classes(ours, train.class_names)}",
            "there is nothing to tell apart; perhaps the path is one folder too high",
            "give a training set of two classes or more",
        )
    if len(trusted) < len(ours):
        raise InputError(
            f"trusted has {wording.count(len(trusted), 'example')} "
            f"but train has {len(ours)} classes",
            f"there is no trusted example of "
            f"{wording.classes(sorted(ours - theirs), train.class_names)}",
            "add trusted examples: one of each class at the least, better ten or more",
        )
    missing, extra = sorted(ours - theirs), sorted(theirs - ours)
    if missing:
        which = wording.classes(missing, train.class_names)
        raise InputError(
            f"train has {len(ours)} classes but trusted has {len(theirs & ours)} of them",
            f"no trusted example of {which}",
            f"AutoDO cannot judge {wording.classes(missing, ())} without one; "
            f"add some to trusted, or drop {_it(missing)} from train",
        )
    if extra:
        which = wording.classes(extra, trusted.class_names)
        raise InputError(
            f"trusted has {len(theirs)} classes but train has {len(ours)} of them",
            f"no training example of {which}",
            f"the model cannot learn {wording.classes(extra, ())} without one; "
            f"add some to train, or drop {_it(extra)} from trusted",
        )


def _it(classes: Sequence[int]) -> str:
    return "the class" if len(classes) == 1 else "those classes"


def _warning(one: str, other: str, sets: dict[str, Examples | MapImages], shared: Pairs) -> str:
    """How many images of ``other`` are, pixel for pixel, also in ``one``."""
    i, j = shared[0]
    harm = (
        "the test error will look better than it is"
        if other == "test"
        else "a model that has learned them by heart cannot be judged on them"
    )
    return (
        f"{wording.count(len(shared), 'image')} of {other} ({len(sets[other]):,} in all) "
        f"also in {one}, pixel for pixel; the first is "
        f"{wording.example(other, j, sets[other].ids)} = {wording.example(one, i, sets[one].ids)}: "
        f"{harm}. Remove them from one of the two."
    )
