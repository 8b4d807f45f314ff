"""What lies at a path: which layout it is and which splits it holds.

A split is known by the name of a file (train-00000-of-00002.parquet, train_32x32.mat, test.npz,
t10k-images-idx3-ubyte.gz) or of a folder (train/). Nothing but names is looked at here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from autodo.data import wording
from autodo.data.folder import ImageFolder
from autodo.data.reading import Source
from autodo.data.sources import cifar, mnist, svhn
from autodo.data.sources.arrays import npz
from autodo.data.sources.parquet import ParquetFiles
from autodo.errors import InputError

_SAME = {
    "training": "train",
    "testing": "test",
    "val": "validation",
    "valid": "validation",
    "dev": "validation",
}
_SPLITS = frozenset({"train", "test", "validation", "extra", *_SAME})

READABLE = (
    "a folder with one sub-folder of images per class, .parquet, .npz, SVHN's .mat, MNIST's idx, "
    "CIFAR's"
)
"""What can be read, in words."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a user says about the set beside its path."""

    name: str = "train"
    class_names: Sequence[str] | None = None
    image_key: str | None = None
    label_key: str | None = None


Splits = dict[str | None, Callable[[], Source]]
"""How to open each split of a layout; None is a set without splits."""


def canonical(split: str) -> str:
    """One word for the names that a split goes by.

    >>> canonical("val"), canonical("Train"), canonical("extra")
    ('validation', 'train', 'extra')
    """
    return _SAME.get(split.lower(), split.lower())


def open_path(place: Path, split: str | None, wanted: Wanted) -> Source:
    """The set at ``place``, or the ``split`` of it."""
    if not place.exists():
        raise InputError(
            f"the {wanted.name} set '{place}' does not exist",
            f"seen from the working folder '{Path.cwd()}'",
            "check the path",
        )
    found = splits_of(place, wanted)
    if split is None:
        if None in found:
            return found[None]()
        if len(found) == 1:
            return next(iter(found.values()))()
        if found:
            raise InputError(
                f"'{place}' holds {len(found)} splits: {wording.some(_named(found))}",
                f"one of them is meant to be the {wanted.name} set",
                f"say which, for instance split='{_named(found)[0]}', or give its own path",
            )
    elif canonical(split) in found:
        return found[canonical(split)]()
    if place.is_file():
        if None in found:
            raise InputError(
                f"no split '{split}' in the file '{place}'",
                "a single file is one set, unless its arrays are named after splits",
                "leave the split out, or give the folder that holds the file of each split",
            )
        raise InputError(
            f"'{place}' is no set of images",
            f"sets are {READABLE} pickled batches (also in their .tar.gz)",
            "unpack or convert it",
        )
    if split is None:
        return ImageFolder(place, name=wanted.name, class_names=wanted.class_names)
    raise InputError(
        f"no split '{split}' in '{place}'",
        f"it holds {wording.some(_named(found))}"
        if _named(found)
        else f"looked for {looked_for(split)}",
        "check the path and the name of the split",
    )


def splits_of(place: Path, wanted: Wanted, *, dataset: str | None = None) -> Splits:
    """Every split that ``place`` holds; where two layouts hold one, the first goes.

    ``dataset`` names the one that is looked for, as a folder may hold the files of several.
    """
    found: Splits = {}
    for splits in _layouts(place, wanted, dataset):
        if found:  # what is left over beside a known layout is no set of its own
            splits.pop(None, None)
        found = splits | found
    return found


def looked_for(split: str, dataset: str | None = None) -> str:
    """The names under which a split (of a dataset) is found, in words.

    >>> looked_for("test", "cifar10").split(", ")[:3]
    ['test-*.parquet', 'test.parquet', 'test.npz']
    """
    names = [f"{split}-*.parquet", f"{split}.parquet", f"{split}.npz"]
    if dataset in (None, "svhn"):
        names.append(svhn.mat_file(Path(), split).name)
    if split in mnist.SPLITS and dataset in (None, *mnist.CLASSES):
        names.append(f"{mnist.SPLITS[split]}-images-idx3-ubyte.gz")
    for key, layout in cifar.LAYOUTS.items():
        if dataset in (None, key):
            names += [f"{layout.folder}/", layout.archive]
    return ", ".join(names) + f" and a folder {split}/ with one sub-folder of images per class"


def _named(found: Splits) -> list[str]:
    return [split for split in found if split is not None]


def _layouts(place: Path, wanted: Wanted, dataset: str | None) -> Iterator[Splits]:
    """The layouts at ``place``, those that say most about themselves first."""
    if dataset in (None, "svhn"):
        yield _mats(place)
    if dataset in (None, *mnist.CLASSES):
        yield _idxs(place, dataset)
    yield _cifars(place, dataset)
    yield _parquets(place, wanted, dataset)
    yield _archives(place, wanted, dataset)
    if place.is_dir():
        yield _folders(place, wanted)


def _mats(place: Path) -> Splits:
    if place.is_file():
        return {None: partial(svhn.mat, place)} if place.suffix == ".mat" else {}
    files = {split: svhn.mat_file(place, split) for split in svhn.SPLITS}
    return {split: partial(svhn.mat, file) for split, file in files.items() if file.is_file()}


def _idxs(place: Path, dataset: str | None) -> Splits:
    files = {split: mnist.idx_files(place, split) for split in mnist.SPLITS}
    return {split: partial(mnist.idx, both, dataset) for split, both in files.items() if both}


def _cifars(place: Path, dataset: str | None) -> Splits:
    layouts = [layout for key, layout in cifar.LAYOUTS.items() if dataset in (None, key)]
    found = cifar.find(place, layouts)
    if found is None:
        return {}
    layout, where = found
    return {split: partial(cifar.cifar, layout, where, split) for split in layout.batches}


def _parquets(place: Path, wanted: Wanted, dataset: str | None) -> Splits:
    opened = partial(
        ParquetFiles,
        place=place,
        image_key=wanted.image_key,
        label_key=wanted.label_key,
        class_names=wanted.class_names,
    )
    if place.is_file():
        if place.suffix != ".parquet":
            return {}
        return {None: partial(opened, [place]), _parts(place.stem)[1]: partial(opened, [place])}
    return {
        split: partial(_one_family, place, found, dataset, opened)
        for split, found in parquet_sets(place).items()
    }


def parquet_sets(place: Path) -> dict[str | None, dict[str, list[Path]]]:
    """The Parquet files in a folder, by split, and in it by what stands before it in their names.

    Those of one set lie together.
    """
    files = sorted(place.glob("*.parquet")) or sorted((place / "data").glob("*.parquet"))
    families: dict[str | None, dict[str, list[Path]]] = {}
    for file in files:
        family, split = _parts(file.stem)
        families.setdefault(split, {}).setdefault(family, []).append(file)
    for folder in _sub_folders(place):  # as the hub's converter lays them out
        if folder.name.lower() in _SPLITS and (files := sorted(folder.glob("*.parquet"))):
            families.setdefault(canonical(folder.name), {})[folder.name] = files
    return families


def _parts(stem: str) -> tuple[str, str | None]:
    """What stands before the split in the name of a Parquet file, and the split.

    >>> [_parts(s) for s in ("train-00000-of-00002", "svhn-test", "val", "0001", "extra-big")]
    [('', 'train'), ('svhn', 'test'), ('', 'validation'), ('', None), ('', None)]
    """
    shard = re.fullmatch(r"(.+?)-\d+-of-\d+(-[0-9a-f]+)?", stem)
    *family, last = re.split(r"[-_.]", shard[1] if shard else stem)
    if last.lower() in _SPLITS:
        return "-".join(family), canonical(last)
    return "", canonical(shard[1]) if shard else None


def _one_family(
    place: Path,
    families: dict[str, list[Path]],
    dataset: str | None,
    opened: Callable[[list[Path]], Source],
) -> Source:
    """The files of one set: those of two (svhn-train, cifar10-train) are not to be joined."""
    named = [files for family, files in families.items() if family.lower() == dataset]
    if named:
        return opened(named[0])
    if len(families) > 1:
        names = (files[0].name for files in families.values())
        raise InputError(
            f"'{place}' holds {len(families)} sets of Parquet files: {wording.some(names)}",
            "they are named differently, so they are not the parts of one set",
            "give the path of a file, or put each set into a folder of its own",
        )
    return opened(*families.values())


def _archives(place: Path, wanted: Wanted, dataset: str | None) -> Splits:
    opened = partial(npz, image_key=wanted.image_key, label_key=wanted.label_key)
    if place.is_file():
        if place.suffix not in (".npz", ".npy"):
            return {}
        whole = partial(opened, place)
        return _inside(place, opened) | {None: whole, _parts(place.stem)[1]: whole}
    found: Splits = {
        canonical(file.stem): partial(opened, file)
        for file in sorted(place.glob("*.npz"))
        if file.stem.lower() in _SPLITS
    }
    if dataset is not None and (place / f"{dataset}.npz").is_file():
        return _inside(place / f"{dataset}.npz", opened) | found
    return found


def _inside(file: Path, opened: Callable[[Path, str], Source]) -> Splits:
    """The splits that an .npz may hold; the names of its arrays say which, to its reader."""
    return {split: partial(opened, file, split) for split in ("train", "test", "validation")}


def _folders(place: Path, wanted: Wanted) -> Splits:
    """Folders named after splits, each with class folders; else the folder itself, as classes."""
    folders = _sub_folders(place)
    splits = [f for f in folders if f.name.lower() in _SPLITS and _sub_folders(f)]
    opened = partial(ImageFolder, name=wanted.name, class_names=wanted.class_names)
    found: Splits = {canonical(folder.name): partial(opened, folder) for folder in splits}
    if folders and len(splits) < len(folders):  # a class may be called 'train' or 'test'
        return {None: partial(opened, place)} | found
    return found


def _sub_folders(place: Path) -> list[Path]:
    if not place.is_dir():
        return []
    return sorted(e for e in place.iterdir() if e.is_dir() and not e.name.startswith("."))
