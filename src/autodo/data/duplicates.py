"""The same image in two sets, pixel for pixel, found without comparing every two images.

Images in memory are hashed a chunk at a time, to 64 bits each, and only those of one hash are
compared: a collision takes time and is never reported. Sets that are read item by item keep no
pixels; beside one of them all sets are known by fingerprints, which that reading made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from torch import Tensor

from autodo.data.examples import Examples
from autodo.data.map_images import MapImages
from autodo.data.pixels import fingerprint, to_unit

CHUNK = 2**21
"""Bytes of pixels, counted as float32, that are looked at together: they stay in the processor's
cache, and of a mapped file no more is held than that."""

Pairs = list[tuple[int, int]]
"""Of each image of one set that is also in another: its first place there, its own place."""


def shared_images(sets: Mapping[str, Examples | MapImages]) -> dict[tuple[str, str], Pairs]:
    """For every two of the sets, the images of the second that are also in the first, in order.

    >>> train = Examples.from_arrays(np.eye(3, dtype=np.uint8).reshape(3, 1, 3), [0, 1, 2])
    >>> shared_images({"train": train, "test": train.subset([2, 0])})
    {('train', 'test'): [(2, 0), (0, 1)]}
    """
    held = {name: data.images for name, data in sets.items() if isinstance(data, Examples)}
    if len(held) < len(sets):
        prints = {name: _fingerprints(data) for name, data in sets.items()}
        return {(a, b): _same_prints(prints[a], prints[b]) for a, b in combinations(sets, 2)}
    # Bytes are compared as such, unless floats are there too: only then must they be alike.
    as_floats = len({images.dtype for images in held.values()}) > 1
    hashed = {name: _Hashed(images, as_floats) for name, images in held.items()}
    return {(a, b): hashed[a].also_here(hashed[b]) for a, b in combinations(sets, 2)}


class _Hashed:
    """Images with the 64-bit hash of each."""

    def __init__(self, images: Tensor, as_floats: bool) -> None:
        self.images, self.as_floats = images, as_floats
        factors = _factors(self._words(slice(1)).shape[1])
        parts = (self._words(part) for part in self._chunks(len(images)))
        self.hashes = np.concatenate([_hashes(words, factors) for words in parts])

    def also_here(self, other: _Hashed) -> Pairs:
        """The images of ``other`` that are also here."""
        order = self.hashes.argsort(kind="stable")  # of equal images the first stays in front
        ranked = self.hashes[order]
        place = ranked.searchsorted(other.hashes)
        end = ranked.searchsorted(other.hashes, side="right")
        twins = np.full(len(place), -1)
        left = np.flatnonzero(place < end)
        while len(left):
            here = order[place[left]]
            same = self._equal(here, other, left)
            twins[left[same]] = here[same]
            left = left[~same]
            place[left] += 1  # a collision: the next image of that hash may be the one
            left = left[place[left] < end[left]]
        found = np.flatnonzero(twins >= 0)
        return list(zip(twins[found].tolist(), found.tolist(), strict=True))

    def _equal(self, here: np.ndarray, other: _Hashed, there: np.ndarray) -> np.ndarray:
        """Whether image here[k] is image there[k] of ``other``, for all k."""
        same = np.empty(len(here), dtype=bool)
        for part in self._chunks(len(here)):
            ours, theirs = self._words(here[part]), other._words(there[part])
            same[part] = (ours == theirs).all(1)
        return same

    def _chunks(self, total: int) -> Iterator[slice]:
        """So many images in parts that are looked at together."""
        step = max(1, CHUNK // (4 * self.images[0].numel()))
        return (slice(start, start + step) for start in range(0, total, step))

    def _words(self, index: slice | np.ndarray) -> np.ndarray:
        """The pixels of some images (n, W) as uint64, filled up with zeros."""
        images = self.images[index].cpu()
        pixels = (to_unit(images) if self.as_floats else images).flatten(1).contiguous().numpy()
        rows = pixels.view(np.uint8)
        if missing := -rows.shape[1] % 8:
            rows = np.pad(rows, ((0, 0), (0, missing)))
        return rows.view(np.uint64)


def _factors(width: int) -> np.ndarray:
    """Random words (2, W) for :func:`_hashes`."""
    return np.random.default_rng(0).integers(2**64, size=(2, width), dtype=np.uint64)


def _hashes(words: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Hash each row of words (n, W): a sum of products modulo 2^64.

    Upper halves of words count twice, since by the first factor they reach only the upper half of
    the sum. Two rows that differ then have the same hash with a chance of 2^-33 at most.
    """
    return words @ factors[0] + (words >> 32) @ factors[1]


def _fingerprints(data: Examples | MapImages) -> Sequence[bytes]:
    if isinstance(data, MapImages):
        return data.fingerprints
    return [fingerprint(image) for image in data.images.cpu()]


def _same_prints(one: Sequence[bytes], other: Sequence[bytes]) -> Pairs:
    places = {print_: i for i, print_ in reversed(list(enumerate(one)))}
    return [(places[p], j) for j, p in enumerate(other) if p in places]
