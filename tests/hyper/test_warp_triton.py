"""Values, matrix and warp in one kernel against the calls of torch.

Without a GPU the kernel runs in Triton's interpreter, which has to be chosen before Triton is
imported: one test starts the others again, in a process of their own.
"""

from __future__ import annotations

import pytest
import torch
from interpreter import HAS_TRITON, INTERPRETED, PLACES, needs_gpu, pass_in_interpreter
from torch import Tensor

from autodo.errors import InputError
from autodo.hyper.augment import Augment

SIZES = [(32, 32), (8, 8), (6, 9), (1, 1), (1, 5), (40, 33)]
AUGMENT = Augment("affine")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(count: int, channels: int, size: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Images, rows of all kinds (gates mostly open) and random numbers."""
    images = torch.rand(count, channels, *size, generator=seeded(0))
    rows = 2 * torch.randn(count, 14, generator=seeded(1))
    return images, rows, AUGMENT.noise(count, seeded(2))


def by_kernel(images: Tensor, rows: Tensor, noise: Tensor, device: str) -> Tensor:
    from autodo.hyper.warp_triton import augmented

    constants = AUGMENT._constants(rows.to(device))
    return augmented(images.to(device), rows.to(device), noise.to(device), constants).cpu()


def by_torch(images: Tensor, rows: Tensor, noise: Tensor) -> Tensor:
    """On the host, in float64."""
    return AUGMENT(images.double(), rows.double(), noise=noise.double()).float()


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@pytest.mark.skipif(INTERPRETED, reason="it is what starts the interpreter")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernel runs as it is")
def test_the_kernel_in_the_interpreter() -> None:
    pass_in_interpreter(__file__)


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_one_kernel_is_the_calls_of_torch(
    size: tuple[int, int], channels: int, device: str
) -> None:
    images, rows, noise = drawn(5, channels, size)
    result = by_kernel(images, rows, noise, device)
    torch.testing.assert_close(result, by_torch(images, rows, noise), rtol=0, atol=2e-5)


@pytest.mark.parametrize("device", PLACES)
def test_one_row_serves_all_images(device: str) -> None:
    images, rows, noise = drawn(6, 3, (8, 8))
    result = by_kernel(images, rows[:1], noise, device)
    torch.testing.assert_close(result, by_torch(images, rows[:1], noise), rtol=0, atol=2e-5)


@pytest.mark.parametrize("device", PLACES)
def test_images_of_any_layout_are_read_as_they_are(device: str) -> None:
    images, rows, noise = drawn(4, 3, (8, 6))
    expected = by_kernel(images, rows, noise, device)
    last = images.contiguous(memory_format=torch.channels_last)
    part = torch.cat([images, images], 3)[..., :6]
    for other in (last, part):
        assert torch.equal(by_kernel(other, rows, noise, device), expected)


@pytest.mark.parametrize("device", PLACES)
def test_closed_gates_give_back_the_images(device: str) -> None:
    images, rows, noise = drawn(4, 3, (8, 6))
    rows[:, 7:] = -40.0
    torch.testing.assert_close(by_kernel(images, rows, noise, device), images, rtol=0, atol=1e-6)


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("column", [0, 3, 7, 13])
def test_a_row_that_is_not_finite_shows(column: int, device: str) -> None:
    images, rows, noise = drawn(3, 1, (4, 4))
    rows[:, 7:] = 40.0
    rows[1, column] = torch.nan
    result = by_kernel(images, rows, noise, device)
    assert result[1].isnan().any()
    assert result[[0, 2]].isfinite().all()


@needs_gpu
def test_an_augmentation_takes_the_kernel_where_no_gradient_is_asked_for() -> None:
    images, rows, noise = (x.cuda() for x in drawn(16, 3, (32, 32)))
    fast = AUGMENT(images, rows, noise=noise)
    assert fast.is_contiguous(memory_format=torch.channels_last)
    slow = AUGMENT(images, rows.requires_grad_(), noise=noise)
    assert slow.requires_grad
    torch.testing.assert_close(fast, slow.detach(), rtol=0, atol=2e-5)


@needs_gpu
def test_rows_that_do_not_fit_are_refused() -> None:
    images, rows, _ = (x.cuda() for x in drawn(4, 3, (8, 8)))
    with pytest.raises(InputError, match="3 augmentation rows came with 4 images"):
        AUGMENT(images, rows[:3])
    with pytest.raises(InputError, match="13 columns"):
        AUGMENT(images, rows[:, :13])
