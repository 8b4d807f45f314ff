"""3x3 convolutions of few channels against convolutions in float64.

Without a GPU the kernels run in Triton's interpreter, which has to be chosen before Triton is
imported: one test starts the others again, in a process of their own.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hopper import compile_only
from interpreter import HAS_TRITON, INTERPRETED, PLACES, needs_gpu, pass_in_interpreter
from torch import Tensor

from autodo.cuda import is_hopper
from autodo.models.conv3x3 import Conv3x3
from autodo.models.wide_resnet import WideResNet
from autodo.train.recorded import WARM_UP, Recorded

LAST = torch.channels_last
# (inputs, outputs, height, width, images): rows of a power of two and not, of 128 numbers and more,
# images that fill tiles and that do not, more tiles than the interpreter has programs.
CASES = [
    (3, 16, 32, 32, 2),
    (16, 64, 16, 16, 3),
    (16, 16, 8, 8, 1),
    (1, 32, 9, 7, 2),
    (7, 64, 5, 6, 3),
    (15, 32, 1, 3, 1),
    (3, 16, 3, 1, 70),
]
ids = ["-".join(map(str, case)) for case in CASES]


def draw(
    inputs: int, outputs: int, height: int, width: int, count: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Images, weights and a gradient; images and weights are what bfloat16 can say."""
    generator = torch.Generator().manual_seed(inputs + outputs)
    x = torch.randn(count, inputs, height, width, generator=generator).bfloat16().to(dtype)
    w = torch.randn(outputs, inputs, 3, 3, generator=generator) / (3 * inputs**0.5)
    dy = torch.randn(count, outputs, height, width, generator=generator).bfloat16()
    return x, w.bfloat16().float(), dy


def ours(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    from autodo.models import conv3x3_triton

    assert conv3x3_triton.fits(x, w)
    x, w = (t.clone(memory_format=torch.preserve_format).requires_grad_() for t in (x, w))
    y = conv3x3_triton.convolution(x, w)
    return y.detach(), *torch.autograd.grad(y, (x, w), dy)


def in_float64(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, w = x.double().requires_grad_(), w.double().requires_grad_()
    y = F.conv2d(x, w, padding=1)
    return y.detach(), *torch.autograd.grad(y, (x, w), dy.double())


def error(found: Tensor, true: Tensor) -> float:
    return float((found.double().cpu() - true.cpu()).norm() / true.norm())


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@pytest.mark.skipif(INTERPRETED, reason="it is what starts the interpreter")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run as they are")
def test_the_kernels_in_the_interpreter() -> None:
    pass_in_interpreter(__file__)


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_it_is_the_convolution_and_its_gradients(
    case: tuple[int, int, int, int, int], dtype: torch.dtype, device: str
) -> None:
    x, w, dy = (t.to(device) for t in draw(*case, dtype))
    y, dx, dw = ours(x, w, dy)
    true_y, true_dx, true_dw = in_float64(x, w, dy)
    assert y.dtype == torch.bfloat16
    assert y.is_contiguous(memory_format=LAST)
    assert (dx.dtype, dx.stride()) == (dtype, x.stride())
    assert (dw.dtype, dw.stride()) == (torch.float32, w.stride())
    # A unit in the last of bfloat16's 8 bits: the interpreter cuts off where a GPU rounds.
    assert error(y, true_y) < 2**-7
    assert error(dx, true_dx) < (2**-7 if dtype == torch.bfloat16 else 1e-5)
    assert error(dw, true_dw) < 1e-5


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("inputs", [3, 16])
def test_images_and_weights_may_lie_in_any_layout(inputs: int, device: str) -> None:
    x, w, dy = (t.to(device) for t in draw(inputs, 16, 6, 5, 2, torch.float32))
    whole = torch.zeros(2, inputs + 2, 6, 5, device=device)
    whole[:, 1:-1] = x
    first = ours(x, w, dy)
    for images, weights in (
        (x.to(memory_format=LAST), w),
        (whole[:, 1:-1], w.to(memory_format=LAST)),
    ):
        for a, b in zip(first, ours(images, weights, dy), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("device", PLACES)
def test_what_is_not_a_number_is_seen(device: str) -> None:
    x, w, dy = (t.to(device) for t in draw(3, 16, 4, 4, 2, torch.float32))
    x[1, 0, 0, 0] = torch.nan
    y, _, dw = ours(x, w, dy)
    assert not y[0].isnan().any()
    assert y[1, :, :2, :2].isnan().all()
    assert dw.isnan().any()


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@pytest.mark.parametrize(
    ("inputs", "outputs", "dtype", "fits"),
    [
        (3, 16, torch.float32, True),
        (16, 64, torch.bfloat16, True),
        (17, 64, torch.bfloat16, False),
        (16, 160, torch.bfloat16, False),
        (3, 16, torch.float64, False),
    ],
)
def test_it_says_which_layers_it_is_for(
    inputs: int, outputs: int, dtype: torch.dtype, fits: bool
) -> None:
    from autodo.models import conv3x3_triton

    x, w = torch.zeros(2, inputs, 4, 4, dtype=dtype), torch.zeros(outputs, inputs, 3, 3)
    assert conv3x3_triton.fits(x, w) == fits
    assert not conv3x3_triton.fits(x[:0], w)


@pytest.mark.skipif(not HAS_TRITON or INTERPRETED, reason="needs Triton's compiler")
@pytest.mark.parametrize("case", [(3, 16, 32, 32, 4), (16, 64, 32, 32, 4)], ids=str)
def test_the_kernels_compile_for_hopper(
    case: tuple[int, int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from autodo.models import conv3x3_triton

    names = ("_forward", "_to_inputs", "_to_weights", "_sum_parts")
    compiled: list[Any] = compile_only(monkeypatch, conv3x3_triton, *names)
    ours(*draw(*case, torch.bfloat16))
    assert len(compiled) == 4
    for kernel in compiled:
        assert "sm_90" in kernel.asm["ptx"]


@needs_gpu
@pytest.mark.parametrize("inputs", [3, 16])
def test_gpu_it_repeats_bit_for_bit_and_can_be_recorded(inputs: int) -> None:
    x, w, dy = (t.cuda() for t in draw(inputs, 64, 32, 32, 64, torch.bfloat16))
    first = ours(x, w, dy)
    step = Recorded(lambda x, dy: ours(x, w, dy), torch.device("cuda"))
    for _ in range(WARM_UP + 3):
        for a, b in zip(first, step(x, dy), strict=True):
            assert torch.equal(a, b)


@needs_gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or not is_hopper(torch.device("cuda", 0)), reason="needs Hopper"
)
def test_gpu_the_first_layers_of_a_network_are_done_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from autodo.models import conv3x3_triton

    asked = []

    def noted(x: Tensor, weight: Tensor) -> Tensor:
        asked.append(tuple(weight.shape[:2]))
        return F.conv2d(x, weight, padding=1)

    monkeypatch.setattr(conv3x3_triton, "convolution", noted)
    model = WideResNet(10, 4, channels=3, num_classes=10).cuda().to(memory_format=LAST)
    images = torch.rand(4, 3, 32, 32, device="cuda").to(memory_format=LAST)
    model(images)
    assert asked == []  # float32 stays float32
    with torch.autocast("cuda", torch.bfloat16):
        model(images)
    assert asked == [(16, 3), (64, 16)]
    monkeypatch.setattr(Conv3x3, "fast", False)
    with torch.autocast("cuda", torch.bfloat16):
        model(images)
    assert len(asked) == 2
