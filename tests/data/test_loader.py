"""Loader: order by seed, scaling, and users' random transforms alive yet reproducible."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from autodo.data import Examples, Loader, open_dataset
from autodo.errors import InputError


def in_memory(n: int = 10, dtype: torch.dtype = torch.uint8) -> Examples:
    images = torch.arange(n, dtype=dtype).view(n, 1, 1, 1).expand(n, 1, 2, 2)
    return Examples.from_arrays(images.contiguous(), torch.arange(n) % 2)


class Jittered(torch.utils.data.Dataset):
    """Images that carry their index plus noise from all three global generators."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        noise = torch.rand(1, 2, 2) + np.random.rand() + random.random()  # noqa: NPY002
        return i + noise / 4, i % 2


class BrokenLater(Jittered):
    """Readable in the checking pass, and no more after it."""

    broken = False

    def __getitem__(self, i: int) -> Any:
        if self.broken and i == 3:
            raise OSError("disk gone")
        return super().__getitem__(i)


def test_batches_without_a_seed_come_in_order() -> None:
    batches = list(Loader(in_memory(), "cpu").batches(4, seed=None))
    assert [index.tolist() for _, _, index in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    for images, labels, index in batches:
        assert torch.equal(images[:, 0, 0, 0], index / 255)
        assert torch.equal(labels, index % 2)


def test_drop_last_leaves_out_the_short_batch() -> None:
    loader = Loader(in_memory(), "cpu")
    assert [len(i) for _, _, i in loader.batches(4, seed=None, drop_last=True)] == [4, 4]
    assert [len(i) for _, _, i in loader.batches(5, seed=None, drop_last=True)] == [5, 5]
    assert list(loader.batches(11, seed=None, drop_last=True)) == []


def test_order_is_the_permutation_of_the_seed() -> None:
    loader = Loader(in_memory(), "cpu")

    def order(seed: int) -> list[int]:
        return torch.cat([index for _, _, index in loader.batches(3, seed=seed)]).tolist()

    expected = torch.randperm(10, generator=torch.Generator().manual_seed(5))
    assert order(5) == expected.tolist()
    assert order(5) != order(6)
    assert sorted(order(6)) == list(range(10))


@pytest.mark.parametrize("source", ["examples", "map"])
def test_uint8_is_scaled_to_one_and_floats_are_kept(source: str) -> None:
    for dtype, expected in ((torch.uint8, 1.0), (torch.float32, 255.0)):
        images = torch.full((2, 1, 2, 2), 255, dtype=dtype)
        items: Any = Examples.from_arrays(images, [0, 1])
        if source == "map":
            items = open_dataset([(image, 0) for image in images], name="train")
        fetched = Loader(items, "cpu").fetch(torch.tensor([1, 0, 1]))
        assert fetched.dtype == torch.float32
        assert fetched.shape == (3, 1, 2, 2)
        assert fetched.eq(expected).all()


def test_in_memory_images_stay_as_bytes_and_are_not_changed() -> None:
    data = in_memory()
    loader = Loader(data, "cpu")
    loader.fetch(torch.arange(10)).add_(1)
    assert data.images.dtype == torch.uint8
    assert data.images[3].eq(3).all()
    floats = in_memory(dtype=torch.float32)
    Loader(floats, "cpu").fetch(torch.arange(10)).add_(1)
    assert floats.images[3].eq(3).all()


def test_sampler_gives_full_batches_for_ever_each_pass_in_a_new_order() -> None:
    loader = Loader(in_memory(), "cpu")
    drawn = [index.tolist() for _, _, index in islice(loader.sampler(4, seed=0), 40)]
    assert all(len(set(index)) == 4 for index in drawn)
    passes = [drawn[k] + drawn[k + 1] for k in range(0, 40, 2)]
    assert all(len(set(points)) == 8 for points in passes)
    assert len({tuple(points) for points in passes}) == 20
    assert {i for index in drawn for i in index} == set(range(10))
    again = [index.tolist() for _, _, index in islice(loader.sampler(4, seed=0), 40)]
    other = [index.tolist() for _, _, index in islice(loader.sampler(4, seed=1), 40)]
    assert again == drawn
    assert other != drawn


def test_sampler_of_a_small_set_gives_the_whole_set() -> None:
    _, _, index = next(Loader(in_memory(3), "cpu").sampler(256, seed=0))
    assert sorted(index.tolist()) == [0, 1, 2]


def test_random_transforms_stay_alive_and_repeat_by_seed() -> None:
    data = open_dataset(Jittered(), name="train")
    loader = Loader(data, "cpu")

    def epoch(seed: int) -> dict[int, torch.Tensor]:
        return {
            i: image
            for images, _, index in loader.batches(4, seed=seed)
            for i, image in zip(index.tolist(), images, strict=True)
        }

    first, again, other = epoch(0), epoch(0), epoch(1)
    assert all(int(image[0, 0, 0]) == i for i, image in first.items())
    assert all(torch.equal(first[i], again[i]) for i in range(10))
    assert not any(torch.equal(first[i], other[i]) for i in range(10))
    # Batches of one epoch are read under seeds of their own: no two points share their noise.
    noise = [{float(epoch[i][0, 0, 0]) - i for i in range(10)} for epoch in (first, other)]
    assert len(noise[0] | noise[1]) == 20


def test_fetch_follows_the_global_random_state() -> None:
    loader = Loader(open_dataset(Jittered(), name="train"), "cpu")
    index = torch.tensor([3, 3])
    a, b = loader.fetch(index)
    assert not torch.equal(a, b)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_reading_leaves_the_global_random_state_alone(num_workers: int) -> None:
    loader = Loader(open_dataset(Jittered(), name="train"), "cpu", num_workers=num_workers)

    def draws() -> tuple[float, float, float]:
        return float(torch.rand(1)), float(np.random.rand()), random.random()  # noqa: NPY002

    def reset() -> None:
        torch.manual_seed(7)
        np.random.seed(7)  # noqa: NPY002
        random.seed(7)

    reset()
    expected = draws()
    reset()
    for _ in loader.batches(4, seed=0):
        pass
    assert draws() == expected


def test_workers_change_nothing() -> None:
    data = open_dataset(Jittered(), name="train")
    alone, helped = Loader(data, "cpu"), Loader(data, "cpu", num_workers=2)
    pairs = list(zip(alone.batches(4, seed=3), helped.batches(4, seed=3), strict=True))
    pairs += islice(zip(alone.sampler(4, seed=3), helped.sampler(4, seed=3), strict=False), 5)
    for ours, theirs in pairs:
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_workers_serve_pass_after_pass() -> None:
    data = open_dataset(Jittered(), name="train")
    alone, helped = Loader(data, "cpu"), Loader(data, "cpu", num_workers=2)
    for seed in (3, 4, 3):
        assert len(list(islice(helped.sampler(4, seed=seed), 3))) == 3  # left early
        pairs = zip(alone.batches(4, seed=seed), helped.batches(4, seed=seed), strict=True)
        for ours, theirs in pairs:
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_item_that_breaks_later_is_named(num_workers: int) -> None:
    dataset = BrokenLater()
    loader = Loader(open_dataset(dataset, name="train"), "cpu", num_workers=num_workers)
    dataset.broken = True
    with pytest.raises(InputError, match=r"train\[3\] cannot be read.*OSError: disk gone"):
        list(loader.batches(4, seed=None))


def test_labels_are_on_the_device() -> None:
    loader = Loader(in_memory(), torch.device("cpu"))
    assert loader.labels.dtype == torch.int64
    assert loader.labels.device.type == "cpu"
    assert len(loader) == 10


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_gpu_gives_the_same_batches(num_workers: int) -> None:
    for data in (in_memory(), open_dataset(Jittered(), name="train")):
        ours = Loader(data, "cpu").batches(4, seed=3)
        theirs = Loader(data, "cuda", num_workers=num_workers).batches(4, seed=3)
        for on_cpu, on_gpu in zip(ours, theirs, strict=True):
            assert all(tensor.is_cuda for tensor in on_gpu)
            torch.testing.assert_close(on_gpu[0].cpu(), on_cpu[0])
            assert torch.equal(on_gpu[1].cpu(), on_cpu[1])
            assert torch.equal(on_gpu[2].cpu(), on_cpu[2])
