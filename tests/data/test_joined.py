"""Sets one after the other, without a copy; batches from the host equal those from the device."""

from __future__ import annotations

import threading
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from autodo.data import Examples, Loader, open_dataset
from autodo.data.joined import Joined, Parts, join
from autodo.errors import InputError


def make(count: int, dtype: torch.dtype, seed: int = 0, classes: int = 3) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (count, 2, 4, 5), dtype=torch.uint8, generator=generator)
    if dtype == torch.float32:
        images = images / 255
    return Examples.from_arrays(
        images, torch.arange(count) % classes, [str(c) for c in range(classes)]
    )


@pytest.mark.parametrize("second", [torch.uint8, torch.float32], ids=str)
def test_images_of_several_sets_by_one_index(second: torch.dtype) -> None:
    one, two = make(7, torch.uint8), make(5, second, 1)
    parts = join(one, two)
    assert isinstance(parts, Parts)
    assert len(parts) == 12
    assert torch.equal(parts.labels, torch.cat([one.labels, two.labels]))
    whole = parts.whole(torch.device("cpu"))
    assert whole.dtype == parts.image_dtype == second
    for index in ([11, 0, 7, 6, 6], [3, 1], [8, 11], []):
        at = torch.tensor(index, dtype=torch.int64)
        assert torch.equal(parts.images_at(at), whole[at])
    assert parts.nbytes == whole.nbytes


@pytest.mark.parametrize("side", [4, 5, 192], ids="{0}x{0}".format)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
def test_images_whose_bytes_fill_words_or_do_not(side: int, dtype: torch.dtype) -> None:
    """3 x 4 x 4 bytes are six words, 3 x 5 x 5 are none; 3 x 192 x 192 are many."""
    pixels = torch.randint(256, (9, 3, side, side), dtype=torch.uint8).to(dtype)
    index = torch.tensor([2, 0, 7, 7, 4])
    whole = torch.zeros(pixels.numel() + 1, dtype=dtype)
    odd = whole[1:].view(pixels.shape).copy_(pixels)  # starts within a word
    turned = pixels.to(memory_format=torch.channels_last)
    for images in (pixels, odd, turned, pixels[::2].repeat_interleave(2, 0)[:9], pixels.flip(0)):
        parts = Parts((Examples.from_arrays(images, torch.arange(9) % 3),))
        assert torch.equal(parts.images_at(index), images[index])


def test_images_are_written_where_they_are_wanted() -> None:
    parts = join(make(7, torch.uint8), make(5, torch.uint8, 1))
    assert isinstance(parts, Parts)
    room = torch.zeros(3, 2, 4, 5, dtype=torch.uint8)
    index = torch.tensor([11, 2, 8])
    assert parts.images_at(index, room).data_ptr() == room.data_ptr()
    assert torch.equal(room, parts.whole(torch.device("cpu"))[index])


def test_a_joined_set_keeps_bytes_where_both_have_them() -> None:
    """A quarter of what worker processes hand over and the device is sent."""
    one = make(6, torch.uint8)
    items = list(zip(one.images, one.labels, strict=True))
    read = open_dataset(items, name="train", class_names=list("012"))
    for second, dtype in ((torch.uint8, torch.uint8), (torch.float32, torch.float32)):
        two = make(6, second, 1)
        for joined in (join(read, two), join(two, read)):
            assert isinstance(joined, Joined)
            assert {joined[i][0].dtype for i in (0, 11)} == {dtype} == {joined.image_dtype}
        images = Loader(join(read, two), "cpu").fetch(torch.tensor([1, 7]))
        unit = two.images[1] / 255 if second == torch.uint8 else two.images[1]
        torch.testing.assert_close(images, torch.stack([one.images[1] / 255, unit]))


def test_sets_of_other_shapes_and_classes_are_refused() -> None:
    one = make(6, torch.uint8)
    other = Examples.from_arrays(torch.zeros(3, 1, 4, 5), [0, 1, 2])
    with pytest.raises(InputError, match="cannot join images of shape"):
        join(one, other)
    with pytest.raises(InputError, match="4 classes"):
        join(one, make(8, torch.uint8, classes=4))


@pytest.mark.parametrize("second", [torch.uint8, torch.float32], ids=str)
def test_batches_from_the_host_are_those_from_the_device(second: torch.dtype) -> None:
    """A limit of no bytes keeps the images where they are."""
    parts = join(make(20, torch.uint8), make(9, second, 1))
    resident, host = Loader(parts, "cpu"), Loader(parts, "cpu", limit=0)
    assert resident._resident is not None
    assert host._resident is None
    passes = ({"seed": None}, {"seed": 3}, {"seed": 3, "points": 20}, {"seed": 1, "balanced": True})
    for options in passes:
        pairs = zip(
            resident.batches(8, **options),  # type: ignore[arg-type]
            host.batches(8, **options),  # type: ignore[arg-type]
            strict=True,
        )
        for one, two in pairs:
            for a, b in zip(one, two, strict=True):
                assert torch.equal(a, b)
    index = torch.tensor([28, 3])
    assert torch.equal(resident.fetch(index), host.fetch(index))


def test_batches_from_the_host_are_gathered_by_a_thread_that_ends() -> None:
    def ours() -> int:
        return sum(thread.name.startswith("autodo") for thread in threading.enumerate())

    loader = Loader(make(20, torch.uint8), "cpu", limit=0)
    batches = loader.sampler(4, seed=0)
    assert ours() == 0
    next(batches)
    assert ours() == 1
    del batches
    assert ours() == 0
    assert len(list(loader.batches(4, seed=1))) == 5
    assert ours() == 0


def test_images_of_a_mapped_file(tmp_path: Path) -> None:
    one = make(20, torch.uint8)
    np.save(tmp_path / "images.npy", one.images.numpy())
    mapped = torch.from_numpy(np.load(tmp_path / "images.npy", mmap_mode="r+"))
    data = Examples.from_arrays(mapped, one.labels)
    pairs = zip(
        Loader(one, "cpu").batches(8, seed=2),
        Loader(data, "cpu", limit=0).batches(8, seed=2),
        strict=True,
    )
    for ours, theirs in pairs:
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gpu_batches_from_the_host() -> None:
    """Many passes, so that pinned memory is used again while the device is behind."""
    parts = join(make(2000, torch.uint8), make(900, torch.uint8, 1))
    here, there = Loader(parts, "cuda"), Loader(parts, "cuda", limit=0)
    same = []
    for one, two in islice(zip(here.sampler(64, 2), there.sampler(64, 2), strict=True), 200):
        torch.cuda._sleep(500_000)
        assert all(a.is_cuda for a in (*one, *two))
        same += [(a == b).all() for a, b in zip(one, two, strict=True)]
    assert bool(torch.stack(same).all())
