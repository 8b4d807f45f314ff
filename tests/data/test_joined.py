"""Sets one after the other, without a copy; batches from the host equal those from the device."""

from __future__ import annotations

import pytest
import torch

from autodo.data import Examples, Loader
from autodo.data.joined import Parts, join
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
    assert whole.dtype == parts.dtype == second
    for index in ([11, 0, 7, 6, 6], [3, 1], [8, 11], []):
        at = torch.tensor(index, dtype=torch.int64)
        assert torch.equal(parts.images_at(at), whole[at])
    assert parts.nbytes == whole.nbytes


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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_from_the_host_on_the_gpu() -> None:
    parts = join(make(20, torch.uint8), make(9, torch.uint8, 1))
    here, there = Loader(parts, "cuda"), Loader(parts, "cuda", limit=0)
    for one, two in zip(here.batches(8, seed=2), there.batches(8, seed=2), strict=True):
        for a, b in zip(one, two, strict=True):
            assert a.is_cuda
            assert torch.equal(a, b)
