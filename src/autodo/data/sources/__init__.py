"""Sets of images from wherever they lie: :func:`load` finds the layout, decodes and caches.

Read are a folder of images by class, Parquet in the layout of the Hugging Face hub, .npz, the
files in which SVHN, CIFAR-10, CIFAR-100, MNIST, Fashion-MNIST and ImageNet are published, and
those by name.
"""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from autodo.data import wording
from autodo.data.cache import default_folder, read_cached
from autodo.data.digits import load_digits_part
from autodo.data.examples import Examples
from autodo.data.gather import read
from autodo.data.labels import default_names
from autodo.data.map_images import Progress
from autodo.data.reading import OnSkipped, Reading, Skipped
from autodo.data.sources.layouts import READABLE, Wanted, open_path
from autodo.data.sources.named import NAMED, open_named
from autodo.errors import InputError

__all__ = ["DIGITS", "NAMED", "Skipped", "load"]

DIGITS = "digits"
"""scikit-learn's digits, by name: there without a file and without a network."""


def load(
    source: str | os.PathLike[str],
    split: str | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    name: str = "train",
    image_size: int | tuple[int, int] | None = None,
    crop: bool | None = None,
    channels: int | None = None,
    skip_corrupt: bool = False,
    on_skipped: OnSkipped | None = None,
    cache: str | os.PathLike[str] | Literal[False] | None = None,
    progress: Progress | None = None,
    class_names: Sequence[str] | None = None,
    image_key: str | None = None,
    label_key: str | None = None,
) -> Examples:
    """The set ``source``, a path or one of the names in NAMED, or digits.

    split: which part, where the path holds several; of a name, 'train' unless said.
    data_dir: the folder in which a name is looked for, in any layout; without it the set is
    fetched with the ``datasets`` library. name: what errors call the set. image_size, channels:
    convert to this size, by squeezing or (crop) by cutting the centre out, and to 1 or 3 channels;
    imagenet is cut, to 256 pixels, unless said otherwise.
    skip_corrupt: leave out what cannot be decoded; ``on_skipped`` is told of it once, and without
    it a warning says so. cache: where decoded images are kept; False keeps none, None is
    $AUTODO_CACHE or the user's cache folder. progress: told (done, total). class_names: those that
    the labels must mean, as of the training set. image_key, label_key: the columns of a Parquet
    file or the arrays of an .npz, where their names are not customary.

    Images mapped from the cache may be written to; what is written stays in memory.
    """
    if source == DIGITS and not Path(source).exists():
        return load_digits_part(split)
    known = NAMED.get(source) if isinstance(source, str) else None
    varied = known is not None and known.image_size is not None
    reading = Reading(
        name=name,
        image_size=known.image_size if known is not None and image_size is None else image_size,
        crop=varied if crop is None else crop,
        channels=channels,
        skip_corrupt=skip_corrupt,
        progress=progress,
    )
    wanted = Wanted(name=name, class_names=class_names, image_key=image_key, label_key=label_key)
    if known is not None:
        place = None if data_dir is None else Path(data_dir)
        found = open_named(os.fspath(source), split, place, wanted)
    else:
        _check_name(source, name)
        found = open_path(Path(source), split, wanted)

    if cache is False:
        contents = read(found, reading)
    else:
        folder = default_folder() if cache is None else Path(cache)
        contents = read_cached(found, reading, folder)
    if contents.skipped:
        _tell(contents.skipped, name, on_skipped)
    if class_names is not None and contents.class_names is None and known is None:
        _tell_numbers(class_names, name)
    # Names say which classes there are; where a file has none, the name of the dataset does.
    nameless = class_names is None and contents.class_names is None
    return contents.examples(
        name=name,
        class_names=class_names,
        num_classes=known.num_classes if known is not None and nameless else None,
    )


def _check_name(source: str | os.PathLike[str], name: str) -> None:
    """Refuse a word that is neither a path nor a name."""
    text = os.fspath(source)
    if Path(text).exists() or Path(text).name != text or Path(text).suffix:
        return
    near = difflib.get_close_matches(text.lower(), [*NAMED, DIGITS], n=3, cutoff=0.5)
    raise InputError(
        f"{name}: there is no dataset called '{text}', and no such file or folder in "
        f"'{Path.cwd()}'",
        f"known by name are {wording.some([*NAMED, DIGITS])}; everything else is a path to "
        f"{READABLE} files",
        f"perhaps you mean {' or '.join(near)}" if near else "check the spelling or the path",
    )


def _tell_numbers(class_names: Sequence[str], name: str) -> None:
    """Numbers are places in a list of names that the set itself does not have."""
    if tuple(class_names) != default_names(len(class_names)):
        taken = (f"{label} is taken for '{called}'" for label, called in enumerate(class_names))
        warnings.warn(
            f"labels of {name} are numbers and the classes of train have names: "
            f"{wording.some(taken, limit=3)}. Give {name} names, too, if they mean something else.",
            stacklevel=3,
        )


def _tell(skipped: Sequence[Skipped], name: str, on_skipped: OnSkipped | None) -> None:
    if on_skipped is not None:
        on_skipped(skipped)
        return
    warnings.warn(
        f"left out {wording.count(len(skipped), 'image')} of {name} that cannot be decoded: "
        f"{wording.some(skipped)}",
        stacklevel=3,
    )
