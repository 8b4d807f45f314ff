"""Pictures for the page, of train or of trusted: from the set itself, else what the run kept.

A run knows where its training set lies if it came from the command line. A run made in memory
keeps small pictures of the examples that stand out, and tiles of those on its map.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from PIL import Image

from autodo.data import wording
from autodo.errors import AutodoError
from autodo.export.origin import Origin
from autodo.report.pictures import EXACT, encode, fitted, sheet_columns
from autodo.report.run import Run
from autodo.report.view import ViewFolder, read_table
from autodo.review.images import Images, open_images, places

SIDES = {"small": 192, "large": 1600}
"""Longest side in pixels of the two sizes that the page asks for."""
_CACHE_BYTES = 64_000_000
_JPEG_QUALITY = 92


class NoPicture(Exception):
    """Why an example cannot be shown; the page says it in the picture's place."""


@dataclass(frozen=True)
class Picture:
    """An encoded picture and its media type."""

    data: bytes
    kind: str


class Gallery:
    """Pictures of one set of a run by index; threads may share it."""

    def __init__(self, kept: Kept, *, note: str = "") -> None:
        self._kept = kept
        self._images: Images | None = None
        self._places = np.empty(0, np.int64)
        self._cache: OrderedDict[tuple[int, str], Picture] = OrderedDict()
        self._cached_bytes = 0
        self._lock = threading.Lock()
        self.note = note
        """What a person should know about the pictures; empty if nothing is amiss."""

    def show_from(self, images: Images, where: np.ndarray) -> None:
        """Take pictures from a set; ``where`` (N,) are the places in it, -1 for none."""
        self._images, self._places = images, where

    def known(self, index: np.ndarray) -> np.ndarray:
        """Of which examples (n,) there is a picture, as far as that is known without opening it."""
        if self._images is not None:
            return self._places[index] >= 0
        return np.isin(index, self._kept.index)

    def picture(self, index: int, size: str) -> Picture:
        """Raises NoPicture if there is none."""
        key = index, size
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        made = self._made(index, size)
        with self._lock:
            if key not in self._cache:
                self._cache[key] = made
                self._cached_bytes += len(made.data)
            while self._cached_bytes > _CACHE_BYTES:
                self._cached_bytes -= len(self._cache.popitem(last=False)[1].data)
        return made

    def _made(self, index: int, size: str) -> Picture:
        side = SIDES[size]
        reason = "the run kept no picture of it"
        if self._images is not None:
            try:
                if self._places[index] < 0:
                    raise FileNotFoundError("it is no longer in its set")
                return encoded(fitted(self._images.open(int(self._places[index]), side), side))
            except Exception as error:  # Pillow's decoders raise nearly every type on broken files
                reason = f"{type(error).__name__}: {error}"
        kept = self._kept.picture(index)
        if kept is None:
            raise NoPicture(reason)
        return encoded(kept)


def encoded(picture: Image.Image) -> Picture:
    """Pixel by pixel where every pixel is seen; WebP for thumbnails; JPEG, which is faster, above.

    >>> encoded(Image.new("L", (8, 8))).kind, encoded(Image.new("RGB", (999, 9))).kind
    ('image/webp', 'image/jpeg')
    """
    if max(picture.size) <= max(EXACT, SIDES["small"]):
        return Picture(encode(picture), "image/webp")
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=_JPEG_QUALITY)
    return Picture(buffer.getvalue(), "image/jpeg")


class Kept:
    """Pictures of one set that the run keeps: thumbnails of train, and tiles of the map."""

    def __init__(self, view: ViewFolder, name: str) -> None:
        self._view = view
        self._thumbnails: dict[int, bytes] = {}
        self._tiles: dict[int, int] = {}
        self._count = 0
        self._lock = threading.Lock()
        if not view.exists:
            return
        if name == "train":
            table = read_table(view.thumbnails)
            pairs = zip(table["index"].to_pylist(), table["image"].to_pylist(), strict=True)
            self._thumbnails = dict(pairs)
        table = read_table(view.map)
        self._count = table.num_rows
        pairs = zip(table["set"].to_pylist(), table["index"].to_pylist(), strict=True)
        self._tiles = {index: tile for tile, (set_, index) in enumerate(pairs) if set_ == name}

    @cached_property
    def index(self) -> np.ndarray:
        """(n,) ascending: the examples that have a picture."""
        return np.array(sorted({*self._thumbnails, *self._tiles}), np.int64)

    def picture(self, index: int) -> Image.Image | None:
        if index in self._thumbnails:
            return Image.open(io.BytesIO(self._thumbnails[index]))
        if index not in self._tiles:
            return None
        columns = sheet_columns(self._count)
        with self._lock:  # decoded once
            side = self._sheet.width // columns
        row, column = divmod(self._tiles[index], columns)
        left, top = column * side, row * side
        return self._sheet.crop((left, top, left + side, top + side))

    @cached_property
    def _sheet(self) -> Image.Image:
        with Image.open(self._view.sprite) as sheet:
            sheet.load()
            return sheet


def open_galleries(
    run: Run, *, source: Origin | None = None, trusted: Origin | None = None
) -> dict[str, Gallery]:
    """The galleries of train and trusted.

    source, trusted: where these sets lie, unless the run knows it.
    """
    about = run.view.read_about() if run.view.exists else {}
    if source is None and about.get("source") is not None:
        source = Origin.from_json(about["source"])
    if trusted is None and about.get("trusted_source") is not None:
        trusted = Origin.from_json(about["trusted_source"])
    galleries = {}
    for name, origin in (("train", source), ("trusted", trusted)):
        kept = Kept(run.view, name)
        gallery = galleries[name] = Gallery(kept)
        seen = run.predictions.get(name)
        if origin is None:
            gallery.note = _only_kept(name, len(kept.index), int(run.data.get(name, 0)))
            continue
        try:
            images = open_images(origin)
            if name == "train":
                ids = run.points["id"].to_pylist()
                where = places(images, ids, run.columns["given_label"])
            else:
                labels = np.empty(0, np.int64) if seen is None else seen["label"]
                where = places(images, None, labels)
        except (AutodoError, OSError) as error:
            gallery.note = f"The {name} images in '{origin}' cannot be shown. {error}"
            continue
        gallery.show_from(images, where)
        if missing := int((where < 0).sum()):
            gallery.note = f"{wording.count(missing, 'image')} of {name} are gone from '{origin}'."
    return galleries


def _only_kept(name: str, kept: int, total: int) -> str:
    if kept >= total:
        return ""
    option = "--source" if name == "train" else "--trusted"
    return (
        f"The run does not know where its {name} images lie; it kept small pictures of {kept:,} "
        f"of {total:,}. To see all of them, start autodo review with {option} PATH."
    )
