"""The datasets that are known by name: where they lie on a disk, and where to fetch them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from autodo.data import wording
from autodo.data.reading import Source
from autodo.data.sources.hub import fetch
from autodo.data.sources.layouts import Wanted, canonical, looked_for, splits_of
from autodo.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Named:
    """A dataset with a name."""

    num_classes: int
    repository: str
    """Where the Hugging Face hub has it."""
    config: str | None = None
    """Which of the repository's configurations."""
    splits: dict[str, str] = field(default_factory=lambda: {"train": "train", "test": "test"})
    """What is asked for, and the split that it is."""
    folders: tuple[str, ...] = ()
    """Other names of its folder, beside its own name."""
    image_size: int | None = None
    """The side that its images, which differ in size, are brought to where none is asked for."""
    at_home: str = ""
    """How to get it by hand."""


NAMED = {
    "svhn": Named(
        num_classes=10,
        repository="ufldl-stanford/svhn",
        config="cropped_digits",
        splits={"train": "train", "test": "test", "extra": "extra"},
        folders=("SVHN", "cropped_digits"),
        at_home="train_32x32.mat and test_32x32.mat from ufldl.stanford.edu/housenumbers",
    ),
    "cifar10": Named(
        num_classes=10,
        repository="uoft-cs/cifar10",
        config="plain_text",
        folders=("CIFAR10", "cifar-10", "CIFAR-10", "plain_text"),
        at_home="cifar-10-python.tar.gz from www.cs.toronto.edu/~kriz/cifar.html",
    ),
    "cifar100": Named(
        num_classes=100,
        repository="uoft-cs/cifar100",
        config="cifar100",
        folders=("CIFAR100", "cifar-100", "CIFAR-100"),
        at_home="cifar-100-python.tar.gz from www.cs.toronto.edu/~kriz/cifar.html",
    ),
    "imagenet": Named(
        num_classes=1000,
        repository="ILSVRC/imagenet-1k",
        # The labels of the test images are secret: the validation images are what is tested on.
        splits={"train": "train", "test": "validation", "validation": "validation"},
        folders=("ImageNet", "imagenet-1k", "ILSVRC2012", "ILSVRC/Data/CLS-LOC"),
        image_size=256,
        at_home="the archives from image-net.org, unpacked to train/ and val/ with a folder per "
        "class",
    ),
    "mnist": Named(
        num_classes=10,
        repository="ylecun/mnist",
        config="mnist",
        folders=("MNIST/raw", "MNIST"),
        at_home="train-images-idx3-ubyte.gz and its like from yann.lecun.com/exdb/mnist",
    ),
    "fashion_mnist": Named(
        num_classes=10,
        repository="zalando-datasets/fashion_mnist",
        config="fashion_mnist",
        folders=("FashionMNIST/raw", "FashionMNIST", "fashion-mnist"),
        at_home="train-images-idx3-ubyte.gz and its like from "
        "github.com/zalandoresearch/fashion-mnist, or Debian's package dataset-fashion-mnist, "
        "which puts them under /usr/share/datasets",
    ),
}


def open_named(name: str, split: str | None, data_dir: Path | None, wanted: Wanted) -> Source:
    """A dataset by its name: from ``data_dir`` where that is given, else from the hub."""
    known = NAMED[name]
    asked = canonical(split or "train")
    if asked not in known.splits:
        raise InputError(
            f"{name} has no split '{split}'",
            f"its splits are {wording.some(known.splits)}",
            "ask for one of them",
        )
    own = known.splits[asked]
    if data_dir is None:
        return _fetched(name, known, own)
    if not data_dir.is_dir():
        raise InputError(
            f"the data folder '{data_dir}' does not exist",
            f"it was to hold {name}",
            "check the path, or leave it out to fetch the set from the Hugging Face hub",
        )
    places = list(_places(name, known, data_dir))
    for place in places:
        found = splits_of(place, wanted, dataset=name)
        if own in found:
            return found[own]()
    raise InputError(
        f"no {asked} split of {name} in '{data_dir}'",
        f"looked for {looked_for(own, name)}, in {wording.some(map(str, places), 12)}",
        f"put it there ({known.at_home}; or the Parquet files of "
        f"huggingface.co/datasets/{known.repository}), or leave the data folder out to fetch it "
        "from the hub",
    )


def _places(name: str, known: Named, data_dir: Path) -> Iterator[Path]:
    """The folders in which the set may lie, its own before the one that may hold others too."""
    for folder in (name, *known.folders):
        if (data_dir / folder).is_dir():
            yield data_dir / folder
            if known.config is not None and (data_dir / folder / known.config).is_dir():
                yield data_dir / folder / known.config
    yield data_dir


def _fetched(name: str, known: Named, split: str) -> Source:
    try:
        return fetch(known.repository, known.config, split)
    except InputError as error:
        raise InputError(
            f"{name} is not on this machine, and {error.fact}",
            error.cause,
            f"{error.cure}: {known.at_home}. A folder of your own that is called '{name}' is "
            f"given as './{name}'",
        ) from error
