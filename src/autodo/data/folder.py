"""A folder of images, one sub-folder per class, decoded into memory.

Every file is decoded in full, so that a truncated one is found here and not in
the tenth epoch; all the unreadable ones are named at once. The order is that
of the sorted relative paths, the same on every machine.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from PIL import Image, ImageOps
from torch import Tensor

from autodo.data import pixels, wording
from autodo.data.examples import Examples
from autodo.data.map_images import Progress
from autodo.errors import InputError

EXTENSIONS = frozenset(
    f".{e}" for e in ("png", "jpg", "jpeg", "bmp", "gif", "webp", "ppm", "pgm", "tif", "tiff")
)


def load_folder(
    path: str | os.PathLike[str],
    *,
    name: str = "train",
    class_names: Sequence[str] | None = None,
    image_size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    progress: Progress | None = None,
) -> Examples:
    """The images below ``path`` as uint8 (N, C, H, W), ids relative to ``path``.

    Class names are the sorted names of the sub-folders, or ``class_names`` (those of train),
    which the sub-folders must then match. A class folder is searched at any depth; hidden
    entries, other file types and files beside the class folders are passed over. Of animated
    images the first frame counts. ``image_size`` (one side or (H, W)) resizes, ``channels``
    (1 or 3) converts; without them all images must agree. ``name`` is what errors call the
    set; ``progress(done, total)`` is told of each file.
    """
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    _check_options(size, channels)
    root = Path(path)
    folders = _class_folders(root, name)
    if class_names is None:
        class_names = [folder.name for folder in folders]
    else:
        _check_names([folder.name for folder in folders], class_names, root, name)
    files = {folder.name: _image_files(folder) for folder in folders}
    without = [c for c in class_names if not files[c]]
    if without:
        raise InputError(
            f"no image in {wording.count(len(without), 'class folder')} of {name}: "
            f"{wording.some(str(root / c) for c in without)}",
            f"images are files that end in {' '.join(sorted(EXTENSIONS))}",
            "put images there, or remove the folder",
        )

    paths = [file for c in class_names for file in files[c]]
    labels = [label for label, c in enumerate(class_names) for _ in files[c]]
    return Examples(
        images=_decode_all(paths, root, name, size, channels, progress),
        labels=torch.tensor(labels),
        class_names=tuple(class_names),
        ids=tuple(file.relative_to(root).as_posix() for file in paths),
        name=name,
    )


def _check_options(size: tuple[int, int] | None, channels: int | None) -> None:
    if size is not None and (len(size) != 2 or min(size) < 1):
        raise InputError(
            f"an image size of {size}",
            "the size is a side in pixels, or height and width",
            "give a positive number, such as --image-size 32",
        )
    if channels not in (None, 1, 3):
        raise InputError(
            f"{channels} channels",
            "images are read as grey (1 channel) or RGB (3)",
            "give --channels 1 or --channels 3",
        )


def _class_folders(root: Path, name: str) -> list[Path]:
    if not root.exists():
        raise InputError(
            f"the {name} folder '{root}' does not exist",
            f"seen from the working folder '{Path.cwd()}'",
            "check the path",
        )
    if not root.is_dir():
        raise InputError(
            f"the {name} folder '{root}' is a file",
            "images are read from a folder with one sub-folder per class",
            "give the folder; unpack an archive first",
        )
    entries = sorted(e for e in root.iterdir() if not e.name.startswith("."))
    folders = [entry for entry in entries if entry.is_dir()]
    if folders:
        return folders
    images = [entry.name for entry in entries if entry.suffix.lower() in EXTENSIONS]
    if images:
        raise InputError(
            f"the {name} folder '{root}' has {wording.count(len(images), 'image')} "
            f"({wording.some(images, 3)}) but no class sub-folders",
            "the class of an image is the name of the sub-folder it is in",
            f"make one sub-folder per class, such as '{root / 'cat' / images[0]}'",
        )
    raise InputError(
        f"the {name} folder '{root}' is empty",
        f"it has no sub-folders and no images ({wording.count(len(entries), 'other file')})",
        "give a folder with one sub-folder of images per class",
    )


def _check_names(found: Sequence[str], expected: Sequence[str], root: Path, name: str) -> None:
    unknown = sorted(set(found) - set(expected))
    missing = [c for c in expected if c not in set(found)]
    if unknown or missing:
        facts = [f"without a folder: {wording.some(missing)}"] if missing else []
        facts += [f"not a known class: {wording.some(unknown)}"] if unknown else []
        raise InputError(
            f"the class folders of {name} in '{root}' are not the {len(expected)} classes "
            f"of train; {'; '.join(facts)}",
            f"the classes are {wording.some(expected)}, upper and lower case matter",
            "rename, add or remove those folders",
        )


def _image_files(folder: Path) -> list[Path]:
    """The images below a class folder, sorted by relative path."""
    found = []
    for place, inner, files in os.walk(folder):
        inner[:] = [d for d in inner if not d.startswith(".")]
        found += [
            Path(place, f)
            for f in files
            if not f.startswith(".") and Path(f).suffix.lower() in EXTENSIONS
        ]
    return sorted(found, key=lambda file: file.relative_to(folder).as_posix())


def _decode_all(
    paths: Sequence[Path],
    root: Path,
    name: str,
    size: tuple[int, int] | None,
    channels: int | None,
    progress: Progress | None,
) -> Tensor:
    """Decode in threads (Pillow lets go of the lock) into one tensor (N, C, H, W) of uint8."""
    images = torch.empty(0)
    shapes: dict[tuple[int, ...], list[Path]] = {}
    broken: list[str] = []
    decode = partial(_decode, size=size, channels=channels)
    with _bombs_are_errors(), ThreadPoolExecutor() as pool:
        for i, image in enumerate(pool.map(decode, paths)):
            if isinstance(image, str):
                broken.append(f"{paths[i].relative_to(root).as_posix()} ({image})")
            else:
                if not shapes:
                    images = torch.empty((len(paths), *image.shape), dtype=torch.uint8)
                shapes.setdefault(tuple(image.shape), []).append(paths[i].relative_to(root))
                if len(shapes) == 1:
                    images[i] = image
            if progress is not None:
                progress(i + 1, len(paths))
    if broken:
        raise InputError(
            f"{wording.count(len(broken), 'image file')} of {name} in '{root}' cannot be decoded: "
            f"{wording.some(broken)}",
            "corrupt, cut off while copying, or not an image whatever the name says",
            "copy again or remove",
        )
    _check_one_shape(shapes, name)
    return images


def _decode(path: Path, *, size: tuple[int, int] | None, channels: int | None) -> Tensor | str:
    """One image as uint8 (C, H, W), or the reason why it cannot be read."""
    try:
        with Image.open(path) as image:
            upright = pixels.convert_mode(ImageOps.exif_transpose(image), channels)
    except Exception as error:  # Pillow's decoders raise nearly every type on broken files
        return f"{type(error).__name__}: {error}"
    if size is not None:
        upright = upright.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return pixels.from_pil(upright)


@contextmanager
def _bombs_are_errors() -> Iterator[None]:
    """Refuse images of gigantic size, of which Pillow only warns.

    Set around the pool and not in each thread: the filters are shared by all threads.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _check_one_shape(shapes: dict[tuple[int, ...], list[Path]], name: str) -> None:
    for what, axes, option in (
        ("numbers of channels", slice(0, 1), "--channels 1 or --channels 3"),
        ("sizes (height, width)", slice(1, 3), "--image-size, such as --image-size 32"),
    ):
        files: dict[tuple[int, ...], list[Path]] = {}
        for shape, members in shapes.items():
            files.setdefault(shape[axes], []).extend(members)
        if len(files) > 1:
            common_first = sorted(files.items(), key=lambda item: -len(item[1]))
            found = (
                f"{'x'.join(map(str, kind))}: {wording.count(len(members), 'image')} "
                f"such as {members[0].as_posix()}"
                for kind, members in common_first
            )
            raise InputError(
                f"the images of {name} have {len(files)} {what}: {wording.some(found, 4)}",
                "a batch holds images of one shape only",
                f"bring them to one with {option}",
            )
