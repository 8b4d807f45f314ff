"""Values, matrix and warp in one kernel, and their gradient in another, against the calls of torch.

Without a GPU the kernels run in Triton's interpreter, which has to be chosen before Triton is
imported: one test starts the others again, in a process of their own.
"""

from __future__ import annotations

import re

import pytest
import torch
from hopper import compile_only
from interpreter import HAS_TRITON, INTERPRETED, PLACES, needs_gpu, pass_in_interpreter
from torch import Tensor

from autodo.errors import InputError
from autodo.hyper.augment import Augment
from autodo.hyper.warp import affine_matrix

SIZES = [(32, 32), (8, 8), (6, 9), (1, 1), (1, 5), (40, 33)]
AUGMENT = Augment("affine")
KINK = 1e-4
"""Pixels between a place and the next whole one, below which rounding may choose the side: float32
holds the places in these images to 4e-6."""
TOLERANCE = 1e-4
"""Of gradients, as a part of the largest number in the row. Over sizes up to (64, 64) the kernel
was up to 1.1e-5 away from float64 in the interpreter, torch in float32 up to 2.2e-5."""


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(count: int, channels: int, size: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Images, rows of all kinds (gates mostly open) and random numbers."""
    images = torch.rand(count, channels, *size, generator=seeded(0))
    rows = 2 * torch.randn(count, 14, generator=seeded(1))
    return images, rows, AUGMENT.noise(count, seeded(2))


def by_kernel(images: Tensor, rows: Tensor, noise: Tensor, device: str) -> Tensor:
    from autodo.hyper.warp_triton import augmented

    images, rows, noise = (x.to(device) for x in (images, rows, noise))
    constants = AUGMENT._constants(rows)
    return augmented(images, rows, noise, constants, AUGMENT.temperature).cpu()


def by_torch(images: Tensor, rows: Tensor, noise: Tensor) -> Tensor:
    """On the host, in float64."""
    return AUGMENT(images.double(), rows.double(), noise=noise.double()).float()


def gradient_by_kernel(
    images: Tensor,
    rows: Tensor,
    noise: Tensor,
    grad: Tensor,
    device: str,
    augment: Augment = AUGMENT,
) -> Tensor:
    """Of the rows, from that of the output."""
    from autodo.hyper.warp_triton import augmented

    images, rows, noise, grad = (x.to(device) for x in (images, rows, noise, grad))
    rows = rows.detach().requires_grad_()
    result = augmented(images, rows, noise, augment._constants(rows), augment.temperature)
    return torch.autograd.grad(result, rows, grad)[0].cpu()


def gradient_by_torch(
    images: Tensor, rows: Tensor, noise: Tensor, grad: Tensor, augment: Augment = AUGMENT
) -> Tensor:
    """The same on the host, in float64."""
    rows = rows.detach().double().requires_grad_()
    result = augment(images.double(), rows, noise=noise.double())
    return torch.autograd.grad(result, rows, grad.double())[0].float()


def off_kinks(images: Tensor, rows: Tensor, noise: Tensor, augment: Augment = AUGMENT) -> Tensor:
    """A gradient of the output, random but 0 where the place that is read is on a pixel.

    There the bilinear image has a kink, and rounding chooses which of two slopes is the gradient.
    """
    height, width = images.shape[2:]
    values = augment.sample(rows.double(), len(images), noise=noise.double())
    columns = dict(zip(augment.operations, values.unbind(-1), strict=True))
    matrix = affine_matrix((height, width), **columns)
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    out = torch.stack((x.flatten(), y.flatten())).double()
    source = torch.linalg.solve(matrix[..., :2], out - matrix[..., 2:])
    clear = ((source - source.round()).abs() > KINK).all(1).unflatten(-1, (height, width))
    return torch.randn(images.shape, generator=seeded(3)) * clear[:, None]


def assert_gradients_agree(ours: Tensor, expected: Tensor) -> None:
    """To a part of the largest number of each row."""
    scale = expected.abs().amax(-1, keepdim=True).clamp(min=1e-6)
    torch.testing.assert_close(ours / scale, expected / scale, rtol=0, atol=TOLERANCE)


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
@pytest.mark.parametrize("gates", [40.0, -40.0], ids=["open", "closed"])
@pytest.mark.parametrize("column", [0, 3, 7, 13])
def test_a_row_that_is_not_finite_shows(column: int, gates: float, device: str) -> None:
    images, rows, noise = drawn(3, 1, (4, 4))
    rows[:, 7:] = gates
    rows[1, column] = torch.nan
    result = by_kernel(images, rows, noise, device)
    assert result[1].isnan().all()
    assert result[[0, 2]].isfinite().all()
    gradient = gradient_by_kernel(images, rows, noise, torch.ones_like(images), device)
    assert gradient[1].isnan().all()
    assert gradient[[0, 2]].isfinite().all()


@needs_gpu
def test_an_augmentation_takes_the_kernel_where_no_gradient_is_asked_for() -> None:
    images, rows, noise = (x.cuda() for x in drawn(16, 3, (32, 32)))
    fast = AUGMENT(images, rows, noise=noise)
    assert fast.is_contiguous(memory_format=torch.channels_last)
    assert not fast.requires_grad
    slow = AUGMENT.apply(images, AUGMENT.sample(rows, 16, noise=noise))
    torch.testing.assert_close(fast, slow, rtol=0, atol=2e-5)


@needs_gpu
def test_an_augmentation_takes_the_kernel_where_rows_alone_ask_for_a_gradient() -> None:
    images, rows, noise = (x.cuda() for x in drawn(16, 3, (32, 32)))

    def by_kernels(images: Tensor, rows: Tensor, augment: Augment = AUGMENT) -> bool:
        given = noise.double() if rows.dtype == torch.float64 else noise
        result = augment(images, rows.detach().requires_grad_(), noise=given)
        assert result.requires_grad
        return "_Augmented" in result.grad_fn.name()

    assert by_kernels(images, rows)
    assert by_kernels(images, rows[:1])
    assert by_kernels(images, rows, Augment(temperature=0.5))
    assert not by_kernels(images.clone().requires_grad_(), rows)
    assert not by_kernels(images.double(), rows)
    assert not by_kernels(images, rows.double())
    assert not by_kernels(images.bfloat16(), rows)
    assert not by_kernels(images, rows, Augment(padding_mode="border"))


@needs_gpu
def test_rows_that_do_not_fit_are_refused() -> None:
    images, rows, _ = (x.cuda() for x in drawn(4, 3, (8, 8)))
    with pytest.raises(InputError, match="3 augmentation rows came with 4 images"):
        AUGMENT(images, rows[:3])
    with pytest.raises(InputError, match="13 columns"):
        AUGMENT(images, rows[:, :13])


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_gradient_of_rows_is_that_of_torch(
    size: tuple[int, int], channels: int, device: str
) -> None:
    images, rows, noise = drawn(5, channels, size)
    grad = off_kinks(images, rows, noise)
    assert grad.flatten(1).any(1).sum() >= 2
    ours = gradient_by_kernel(images, rows, noise, grad, device)
    assert_gradients_agree(ours, gradient_by_torch(images, rows, noise, grad))


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("size", [(8, 8), (40, 33)], ids=str)
@pytest.mark.parametrize("count", [1, 6])
def test_the_gradient_of_a_row_for_all_images_is_their_sum(
    count: int, size: tuple[int, int], device: str
) -> None:
    images, rows, noise = drawn(count, 3, size)
    grad = off_kinks(images, rows[:1], noise)
    ours = gradient_by_kernel(images, rows[:1], noise, grad, device)
    assert_gradients_agree(ours, gradient_by_torch(images, rows[:1], noise, grad))


@pytest.mark.parametrize("device", PLACES)
def test_gates_are_learned_at_their_temperature(device: str) -> None:
    augment = Augment("affine", magnitude=3.0, temperature=0.4)
    images, rows, noise = drawn(5, 3, (8, 6))
    grad = off_kinks(images, rows, noise, augment)
    ours = gradient_by_kernel(images, rows, noise, grad, device, augment)
    assert_gradients_agree(ours, gradient_by_torch(images, rows, noise, grad, augment))


@pytest.mark.parametrize("device", PLACES)
def test_values_set_to_a_bound_pass_a_gradient_to_their_gates_alone(device: str) -> None:
    images, rows, noise = drawn(4, 3, (16, 12))
    rows[:, :7], rows[:, 7:] = 1.0, 2.0
    noise[0] = 0.5
    bounded = [1, 5, 6]
    noise[1, :, bounded] = torch.tensor([-12.0, 12.0, -12.0])
    grad = off_kinks(images, rows, noise)
    ours = gradient_by_kernel(images, rows, noise, grad, device)
    assert_gradients_agree(ours, gradient_by_torch(images, rows, noise, grad))
    free = [a for a in range(7) if a not in bounded]
    assert not ours[:, bounded].any()
    assert ours[:, free].all()
    assert ours[:, 7:].all()


class Bounded(Augment):
    """With bounds that values can have exactly."""

    def _constants(self, like: Tensor) -> Tensor:
        centre, spread = [0, 1, 1, 0, 0, 0, 0], [2] * 7
        low, high = [-4, 0.5, 0.5, -1, -1, -1, -1], [4, 1.5, 1.5, 1, 1, 1, 1]
        return torch.tensor([centre, spread, low, high], dtype=like.dtype, device=like.device)


@pytest.mark.parametrize("device", PLACES)
def test_a_value_at_its_bound_passes_its_gradient(device: str) -> None:
    augment = Bounded("affine")
    images, rows, noise = drawn(2, 3, (16, 12))
    rows[:, :7], rows[:, 7:] = 0.0, 2.0  # sigmoid(0) 2 = 1: the draws are the values' distances
    noise[0] = 0.5
    noise[1, 0] = torch.tensor([4.0, 0.5, -0.5, 0.3, -0.3, 1.0, -0.2])
    noise[1, 1] = torch.tensor([-4.0, -0.5, 0.5, -0.3, 0.3, 0.2, -1.0])
    grad = off_kinks(images, rows, noise, augment)
    ours = gradient_by_kernel(images, rows, noise, grad, device, augment)
    assert_gradients_agree(ours, gradient_by_torch(images, rows, noise, grad, augment))
    assert ours.all()


@pytest.mark.parametrize("device", PLACES)
def test_closed_gates_are_learned_and_what_is_behind_them_is_not(device: str) -> None:
    """All pixels are read from kinks, with sides of powers of two exactly: on the same side."""
    images, rows, noise = drawn(4, 3, (8, 16))
    rows[:, 7:], noise[0] = -2.0, 0.5
    grad = torch.randn(images.shape, generator=seeded(3))
    ours = gradient_by_kernel(images, rows, noise, grad, device)
    assert_gradients_agree(ours, gradient_by_torch(images, rows, noise, grad))
    assert not ours[:, :7].any()
    assert ours[:, 7:].all()


@pytest.mark.parametrize("device", PLACES)
def test_gradients_of_any_layout_are_read_as_they_are(device: str) -> None:
    images, rows, noise = drawn(4, 3, (8, 6))
    grad = off_kinks(images, rows, noise)
    expected = gradient_by_kernel(images, rows, noise, grad, device)
    for x in (images, torch.cat([images, images], 3)[..., :6]):
        last = x.contiguous(memory_format=torch.channels_last)
        part = torch.cat([grad, grad], 2)[:, :, 8:]
        assert torch.equal(gradient_by_kernel(x, rows, noise, part, device), expected)
        assert torch.equal(gradient_by_kernel(last, rows, noise, grad, device), expected)
        other = grad.contiguous(memory_format=torch.channels_last)
        assert torch.equal(gradient_by_kernel(x, rows, noise, other, device), expected)
    same = grad[:1, :1].expand_as(grad)
    expected = gradient_by_kernel(images, rows, noise, same.contiguous(), device)
    assert torch.equal(gradient_by_kernel(images, rows, noise, same, device), expected)


@pytest.mark.parametrize("device", PLACES)
def test_a_gradient_that_is_not_finite_shows(device: str) -> None:
    images, rows, noise = drawn(3, 3, (8, 6))
    grad = torch.ones_like(images)
    grad[1, 2, 4, 3] = torch.nan
    gradient = gradient_by_kernel(images, rows, noise, grad, device)
    assert gradient[1].isnan().all()
    assert gradient[[0, 2]].isfinite().all()


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (2, 3, 0, 8)], ids=str)
def test_no_pixels_have_no_gradient(shape: tuple[int, ...], device: str) -> None:
    images, rows, noise = torch.empty(shape), AUGMENT.initial_row()[None], AUGMENT.noise(shape[0])
    assert by_kernel(images, rows, noise, device).shape == shape
    gradient = gradient_by_kernel(images, rows, noise, torch.empty(shape), device)
    assert torch.equal(gradient, torch.zeros(1, 14))


class Fused(Augment):
    """By the kernels, wherever the data are."""

    def _can_fuse(self, images: Tensor, rows: Tensor) -> bool:
        return True


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_get_their_gradient_in_their_shape_and_type(dtype: torch.dtype, device: str) -> None:
    images, rows, noise = drawn(4, 3, (8, 6))
    row = rows[0].to(dtype)
    grad = off_kinks(images, row, noise)
    expected = gradient_by_torch(images, row, noise, grad)
    row = row.to(device).requires_grad_()
    result = Fused("affine")(images.to(device), row, noise=noise)
    result.backward(grad.to(device))
    assert row.grad is not None
    assert row.grad.shape == (14,)
    assert row.grad.dtype == dtype
    tolerance = TOLERANCE if dtype == torch.float32 else 2**-8
    scale = float(expected.abs().max())
    torch.testing.assert_close(row.grad.cpu().float(), expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("device", PLACES)
def test_the_gradient_is_not_differentiated_again(device: str) -> None:
    from autodo.hyper.warp_triton import augmented

    images, rows, noise = (x.to(device) for x in drawn(2, 1, (4, 4)))
    result = augmented(images, rows.requires_grad_(), noise, AUGMENT._constants(rows), 1.0)
    grad = torch.ones_like(images).requires_grad_()
    (gradient,) = torch.autograd.grad(result, rows, grad, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@needs_gpu
def test_gradients_on_the_gpu_repeat_bit_for_bit() -> None:
    images, rows, noise = drawn(64, 3, (40, 33))
    grad = torch.randn(images.shape, generator=seeded(3))
    for given in (rows, rows[:1]):
        first, second = (gradient_by_kernel(images, given, noise, grad, "cuda") for _ in range(2))
        assert torch.equal(first, second)


@needs_gpu
def test_both_kernels_can_be_recorded() -> None:
    images, rows, noise = (x.cuda() for x in drawn(16, 3, (40, 33)))
    grad = torch.randn(images.shape, generator=seeded(3)).cuda()

    def step() -> Tensor:
        leaf = rows.detach().clone().requires_grad_()
        return torch.autograd.grad(AUGMENT(images, leaf, noise=noise), leaf, grad)[0]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step()
    rows.copy_(rows.flip(0))
    graph.replay()
    assert torch.equal(recorded, step())
    assert recorded.any()


@pytest.mark.skipif(not HAS_TRITON or INTERPRETED, reason="needs Triton as a compiler")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run as they are")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(32, 32), (40, 33), (1, 1), (1, 5)], ids=str)
def test_kernels_compile_for_hopper(
    size: tuple[int, int], channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton compiles without a GPU, and is stricter than its interpreter."""
    from autodo.hyper import warp_triton

    compiled = compile_only(monkeypatch, warp_triton, "_augment", "_augment_backward")
    images, rows, noise = drawn(2, channels, size)
    gradient_by_kernel(images, rows, noise, torch.ones_like(images), "cpu")
    assert len(compiled) == 2
    for kernel in compiled:
        assert "sm_90" in kernel.asm["ptx"]
        assert not re.search(r"\batom\b|\bred\b", kernel.asm["ptx"])  # sums in no fixed order
