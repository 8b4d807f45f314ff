"""shared_images: what comparing every two images would find, without doing so."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from autodo.data import Examples, duplicates, open_dataset
from autodo.data.duplicates import Pairs, shared_images
from autodo.data.pixels import to_unit


def drawn(count: int, *shape: int, seed: int = 0) -> Tensor:
    """Random images (N, C, H, W), uint8."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, *shape), generator=generator, dtype=torch.uint8)


def held(images: Tensor) -> Examples:
    return Examples.from_arrays(images, [0] * len(images))


def found(one: Tensor, other: Tensor) -> Pairs:
    return shared_images({"train": held(one), "test": held(other)})["train", "test"]


def compared(one: Tensor, other: Tensor) -> Pairs:
    """The slow way: every image with every other."""
    pairs = []
    for j, theirs in enumerate(to_unit(other)):
        same = [i for i, ours in enumerate(to_unit(one)) if torch.equal(ours, theirs)]
        pairs += [(same[0], j)] if same else []
    return pairs


def with_repeats(seed: int, *shape: int) -> tuple[Tensor, Tensor]:
    """Two sets of 60 and 40 images, many of them the same ones."""
    few, generator = drawn(50, *shape), np.random.default_rng(seed)
    return few[generator.integers(30, size=60)], few[generator.integers(20, 50, size=40)]


@pytest.mark.parametrize("shape", [(3, 4, 4), (3, 5, 5), (1, 3, 3), (2, 1, 7), (1, 2, 2)])
@pytest.mark.parametrize("floats", [(False, False), (True, True), (True, False), (False, True)])
@pytest.mark.parametrize("chunk", [1, 1000, 2**21])
def test_it_finds_what_comparing_all_images_finds(
    shape: tuple[int, ...], floats: tuple[bool, bool], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "CHUNK", chunk)
    one, other = (
        to_unit(images) if as_floats else images
        for images, as_floats in zip(with_repeats(1, *shape), floats, strict=True)
    )
    pairs = found(one, other)
    assert 0 < len(pairs) < len(other)
    assert pairs == compared(one, other)


def test_collisions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = with_repeats(2, 3, 5, 5)
    expected = found(one, other)
    monkeypatch.setattr(duplicates, "_factors", lambda width: np.zeros((2, width), dtype=np.uint64))
    assert found(one, other) == expected == compared(one, other)


def test_an_image_is_found_far_behind_the_first_chunk() -> None:
    images = drawn(3000, 3, 16, 16)
    assert len(images) * 4 * images[0].numel() > 4 * duplicates.CHUNK
    other = torch.cat([drawn(1500, 3, 16, 16, seed=1), images[2998:2999]])
    assert found(images, other) == [(2998, 1500)]


@pytest.mark.parametrize("change", [1, 128])
def test_images_that_differ_in_one_pixel_are_not_the_same(change: int) -> None:
    image = drawn(1, 3, 5, 5)
    near = image.repeat(75, 1, 1, 1)
    near.view(75, 75)[range(75), range(75)] ^= change  # another pixel in each
    assert found(near, image) == []
    assert found(to_unit(near), to_unit(image)) == []
    assert found(near, near.flip(0)) == [(74 - j, j) for j in range(75)]


def test_images_that_differ_at_the_ends_of_words_differ_in_hash() -> None:
    """Such pixels reach the topmost byte of a product only; many images must not share a hash."""
    images = torch.zeros(4096, 1, 4, 8, dtype=torch.uint8)
    images[:, 0, :2, 7] = torch.stack([torch.arange(4096) % 256, torch.arange(4096) // 256], 1).to(
        torch.uint8
    )
    hashes = duplicates._Hashed(images, as_floats=False).hashes
    assert len(np.unique(hashes)) == 4096


def test_pixels_may_lie_in_any_order_in_memory() -> None:
    images = drawn(20, 3, 4, 6)
    last = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert found(last, images.flip(0)) == [(19 - j, j) for j in range(20)]


def test_sets_are_paired_in_their_order_and_one_that_is_read_by_item_too() -> None:
    one, other = with_repeats(3, 3, 4, 4)
    third = torch.cat([other[:5], drawn(3, 3, 4, 4, seed=9)])
    sets = {"train": held(one), "trusted": held(other), "test": held(third)}
    expected = {
        ("train", "trusted"): compared(one, other),
        ("train", "test"): compared(one, third),
        ("trusted", "test"): compared(other, third),
    }
    read = open_dataset([(image, 0) for image in other], name="trusted")
    for trusted in (held(other), read):
        pairs = shared_images({**sets, "trusted": trusted})
        assert list(pairs.items()) == list(expected.items())


def test_mapped_images_are_not_read_into_memory_at_once(tmp_path: Path) -> None:
    """Rows of 75 bytes must be filled up, which makes a copy: of a chunk and not of the set."""
    file = np.lib.format.open_memmap(
        tmp_path / "images.npy", mode="w+", dtype=np.uint8, shape=(400_000, 3, 5, 5)
    )
    file.reshape(len(file), -1)[:, :4] = (
        np.arange(len(file), dtype="<u4").view(np.uint8).reshape(-1, 4)
    )
    images = held(torch.from_numpy(file))
    tracemalloc.start()
    try:
        few = images.subset([399_999, 7])
        pairs = shared_images({"train": images, "test": few})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert pairs["train", "test"] == [(399_999, 0), (7, 1)]
    assert peak < file.nbytes / 2  # 64-bit hashes and their order are a third
