"""Encoded images (files, bytes) decoded by Pillow in threads, some at a time and in order.

Threads, because Pillow lets go of the interpreter lock while it decodes: photographs decode on
every core. Tiny images are bound by Python itself, where processes would gain at most the number
of cores but cost their start, a copy of every image and the rules of ``__main__`` for the caller.
"""

from __future__ import annotations

import io
import os
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps

from autodo.data import pixels
from autodo.data.reading import Batch, Reading, Skipped

_GROUP = 32  # images per task: few enough for photographs, enough to hide the cost of a task


class Encoded(NamedTuple):
    """One image before it is decoded."""

    id: str
    label: Any
    data: bytes | Path | None
    """The bytes, the file that holds them, or None where the source has neither."""


def decode(items: Iterable[Encoded], total: int, reading: Reading) -> Iterator[Batch]:
    """Batches of uint8 images in the order of ``items``, of which few are held at a time."""
    workers = available_cores()
    waiting: deque[Future[Batch]] = deque()
    done = 0
    pool = ThreadPoolExecutor(workers)
    try:
        for group in _grouped(items):
            waiting.append(pool.submit(_decode_group, group, reading))
            if len(waiting) > 2 * workers:
                yield (batch := waiting.popleft().result())
                done = _tell(reading, batch, done, total)
        while waiting:
            yield (batch := waiting.popleft().result())
            done = _tell(reading, batch, done, total)
    finally:
        pool.shutdown(cancel_futures=True)


def available_cores() -> int:
    """Cores this process may use, which a batch system may limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _grouped(items: Iterable[Encoded]) -> Iterator[list[Encoded]]:
    items = iter(items)
    while group := list(islice(items, _GROUP)):
        yield group


def _tell(reading: Reading, batch: Batch, done: int, total: int) -> int:
    count = len(batch.labels) + len(batch.skipped)
    if reading.progress is not None:
        for k in range(count):
            reading.progress(done + k + 1, total)
    return done + count


def _decode_group(group: list[Encoded], reading: Reading) -> Batch:
    images, labels, ids, skipped = [], [], [], []
    for item in group:
        image = _decode_one(item.data, reading)
        if isinstance(image, str):
            skipped.append(Skipped(item.id, image))
        else:
            images.append(image)
            labels.append(item.label)
            ids.append(item.id)
    return Batch(images, labels, ids, skipped)


def _decode_one(data: bytes | Path | None, reading: Reading) -> np.ndarray | str:
    """One image as uint8 (C, H, W), or the reason why it cannot be read."""
    if data is None:
        return "no image: the entry is empty"
    try:
        with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data) as image:
            upright = pixels.convert_mode(ImageOps.exif_transpose(image), reading.channels)
    except Exception as error:  # Pillow's decoders raise nearly every type on broken files
        # Bytes have no name; Pillow would print the address of the buffer instead.
        return f"{type(error).__name__}: {error}".split(" <_io.BytesIO")[0]
    return resized(upright, reading)


def resized(image: Image.Image, reading: Reading) -> np.ndarray:
    """A PIL image of mode L, RGB or F as an array (C, H, W) of the size asked for."""
    if reading.size is not None:
        height, width = reading.size
        if reading.crop:
            image = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
        else:
            image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.atleast_3d(np.asarray(image)).transpose(2, 0, 1))


@contextmanager
def bombs_are_errors() -> Iterator[None]:
    """Refuse images of gigantic size, of which Pillow only warns.

    Set around the whole of reading and not in each thread: the filters are shared by all threads.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield
