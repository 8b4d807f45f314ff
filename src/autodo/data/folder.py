"""A folder of images, one sub-folder per class.

Every file is decoded in full, so that a truncated one is found here and not in
the tenth epoch; all the unreadable ones are named at once. The order is that
of the sorted relative paths, the same on every machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from autodo.data import wording
from autodo.data.decode import Encoded, decode
from autodo.data.examples import Examples
from autodo.data.gather import read
from autodo.data.map_images import Progress
from autodo.data.reading import Batch, OnSkipped, Reading
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
    skip_corrupt: bool = False,
    on_skipped: OnSkipped | None = None,
) -> Examples:
    """The images below ``path`` as uint8 (N, C, H, W), ids relative to ``path``.

    Class names are the sorted names of the sub-folders, or ``class_names`` (those of train),
    which the sub-folders must then match. A class folder is searched at any depth; hidden
    entries, other file types and files beside the class folders are passed over. Links to files
    are followed and a class folder may be a link, but linked folders inside one are passed over:
    they could lead in circles, and to the same images twice. Of animated images the first frame
    counts. ``image_size`` (one side or (H, W)) resizes, ``channels``
    (1 or 3) converts; without them all images must agree. ``name`` is what errors call the
    set; ``progress(done, total)`` is told of each file. ``skip_corrupt`` leaves out files that
    cannot be decoded, of which ``on_skipped`` is told.
    """
    reading = Reading(
        name=name,
        image_size=image_size,
        channels=channels,
        progress=progress,
        skip_corrupt=skip_corrupt,
    )
    contents = read(ImageFolder(Path(path), name=name, class_names=class_names), reading)
    if contents.skipped and on_skipped is not None:
        on_skipped(contents.skipped)
    return contents.examples(name=name, class_names=class_names)


class ImageFolder:
    """The image files below ``root`` with their labels, as a source."""

    noun = "image file"

    def __init__(self, root: Path, *, name: str, class_names: Sequence[str] | None = None) -> None:
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
                f"images are files that end in {' '.join(sorted(EXTENSIONS))}; "
                "linked folders inside a class folder are passed over",
                "put images there, or remove the folder",
            )
        self.root, self.place = root, str(root)
        self.class_names: Sequence[str] = tuple(class_names)
        self.files = [file for c in class_names for file in files[c]]
        self.labels = [label for label, c in enumerate(class_names) for _ in files[c]]
        self.total = len(self.files)

    @property
    def identity(self) -> Any:
        return ["folder", str(self.root.resolve()), self.class_names]

    def batches(self, reading: Reading) -> Iterator[Batch]:
        items = (
            Encoded(file.relative_to(self.root).as_posix(), label, file)
            for file, label in zip(self.files, self.labels, strict=True)
        )
        return decode(items, self.total, reading)


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
