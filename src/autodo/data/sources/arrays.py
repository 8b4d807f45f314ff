"""Images and labels that lie on the disk as arrays: an .npz, and what other readers unpack.

:class:`ArraySource` puts the reading off until the arrays are asked for, since a set in the
cache does not need them.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from torch import Tensor

from autodo.data import pixels
from autodo.data.columns import IMAGE_NAMES, LABEL_NAMES, choose
from autodo.data.decode import resized
from autodo.data.reading import Batch, Reading
from autodo.errors import InputError

_CHUNK = 1024
_LUMA = (0.299, 0.587, 0.114)  # the weights with which Pillow makes grey of RGB


class Arrays(NamedTuple):
    """A labelled set as arrays."""

    images: np.ndarray
    """(N, C, H, W), (N, H, W, C) or (N, H, W)."""
    labels: np.ndarray
    """(N,), or (N, 1)."""
    class_names: Sequence[str] | None = None


class ArraySource:
    """Arrays that ``load`` reads from ``files`` when they are needed, as a source."""

    noun = "image"

    def __init__(
        self, load: Callable[[], Arrays], *, files: Sequence[Path], place: Path, identity: Any
    ) -> None:
        self._load = load
        self.files, self.place, self.identity = files, str(place), identity

    @cached_property
    def _arrays(self) -> Arrays:
        arrays = self._load()
        labels = arrays.labels
        if labels.ndim == 2 and labels.shape[1] == 1:
            arrays = arrays._replace(labels=labels[:, 0])
        if len(arrays.images) != len(arrays.labels):
            raise InputError(
                f"'{self.place}' has {len(arrays.images):,} images and {len(labels):,} labels",
                "each image has one label",
                "give as many of each",
            )
        return arrays

    @property
    def total(self) -> int:
        return len(self._arrays.labels)

    @property
    def class_names(self) -> Sequence[str] | None:
        return self._arrays.class_names

    def batches(self, reading: Reading) -> Iterator[Batch]:
        images = pixels.as_images(self._arrays.images, where=f"'{self.place}'")
        if images.ndim != 4:
            raise InputError(
                f"the images in '{self.place}' have shape {tuple(images.shape)}",
                "images are (N, C, H, W), (N, H, W, C) or (N, H, W)",
                "name the array that holds them as image_key, or reshape it",
            )
        labels = self._arrays.labels
        for start in range(0, len(images), _CHUNK):
            part = _fitted(images[start : start + _CHUNK], reading)
            yield Batch(part, labels[start : start + _CHUNK], ())
            if reading.progress is not None:
                reading.progress(start + len(part), len(images))


def _fitted(images: Tensor, reading: Reading) -> np.ndarray:
    """Images (n, C, H, W) in the size and with the channels asked for."""
    size, channels = reading.size, reading.channels
    if size in (None, tuple(images.shape[2:])) and channels in (None, images.shape[1]):
        return images.numpy()
    if images.is_floating_point():
        return _fitted_floats(images, reading)
    arrays = images.permute(0, 2, 3, 1).numpy()
    pictures = (Image.fromarray(a[..., 0] if a.shape[-1] == 1 else a) for a in arrays)
    return np.stack([resized(pixels.convert_mode(p, channels), reading) for p in pictures])


def _fitted_floats(images: Tensor, reading: Reading) -> np.ndarray:
    """The same for floats, of which Pillow holds one channel at a time."""
    if reading.channels == 1 and images.shape[1] == 3:
        images = (images * images.new_tensor(_LUMA).view(3, 1, 1)).sum(1, keepdim=True)
    elif reading.channels == 3:
        images = images.expand(-1, 3, -1, -1)
    return np.stack(
        [
            np.concatenate([resized(Image.fromarray(plane), reading) for plane in image])
            for image in images.numpy()
        ]
    )


def npz(
    file: Path,
    split: str | None = None,
    *,
    image_key: str | None = None,
    label_key: str | None = None,
) -> ArraySource:
    """The images and labels of an .npz; with a ``split``, those that are named after it.

    Without keys, the arrays are known by customary names: images, x, data ... and labels, y ...,
    and those of a split by the same with its name before or after (x_train, train_images).
    """
    with _opened(file) as arrays:
        types = {key: f"{_kind(arrays, key)}" for key in arrays.files}
    images = _key("image", types, image_key, IMAGE_NAMES, split, file)
    labels = _key("label", types, label_key, LABEL_NAMES, split, file)

    def load() -> Arrays:
        with _opened(file) as arrays:
            names = next((n for n in ("class_names", "classes", "label_names") if n in types), None)
            return Arrays(
                _member(arrays, images, file),
                _member(arrays, labels, file),
                None if names is None else [str(n) for n in _member(arrays, names, file)],
            )

    return ArraySource(load, files=[file], place=file, identity=["npz", images, labels])


def _opened(file: Path) -> Any:
    try:
        opened = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"'{file}' cannot be read as .npz",
            f"{type(error).__name__}: {error}",
            "write it again with numpy.savez_compressed(path, images=..., labels=...)",
        ) from error
    if isinstance(opened, np.ndarray):
        raise InputError(
            f"'{file}' holds one array of shape {opened.shape}",
            "a set needs images and labels",
            "write both into one .npz: numpy.savez_compressed(path, images=..., labels=...)",
        )
    return opened


def _kind(arrays: Any, key: str) -> str:
    """Shape and type of a member, read from its header alone."""
    with arrays.zip.open(f"{key}.npy") as member:
        try:
            version = np.lib.format.read_magic(member)
            reader = {(1, 0): np.lib.format.read_array_header_1_0}.get(
                version, np.lib.format.read_array_header_2_0
            )
            shape, _, dtype = reader(member)
        except ValueError:
            return "not an array"
    return f"{dtype} {shape}"


def _member(arrays: Any, key: str, file: Path) -> np.ndarray:
    try:
        return arrays[key]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"array {key} of '{file}' cannot be read",
            f"{type(error).__name__}: {error}",
            "write it again as a plain array of numbers; Python objects are not read",
        ) from error


def _key(
    what: str,
    types: dict[str, str],
    given: str | None,
    customary: Sequence[str],
    split: str | None,
    file: Path,
) -> str:
    """The key of the images or the labels, of the whole or of a split."""
    names = customary
    if split is not None:
        marks = (split, "val") if split == "validation" else (split,)
        forms = ("{name}_{mark}", "{mark}_{name}")
        names = [f.format(name=n, mark=m) for n in customary for m in marks for f in forms]
    return choose(
        what,
        types,
        [key for key in types if key.lower() in names],
        given=given,
        customary=names,
        where=str(file),
        option=f"{what}_key" if split else f"{what}_key, or name the split",
        part="array",
    )
