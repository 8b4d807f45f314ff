"""Conv1x1 against nn.Conv2d, and its kernels against convolutions in float64.

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
from torch import Tensor, nn

from autodo.cuda import is_hopper
from autodo.models.conv1x1 import Conv1x1
from autodo.models.wide_resnet import WideResNet
from autodo.train.recorded import WARM_UP, Recorded

LAST = torch.channels_last
# (inputs, outputs, stride, height, width, images): one block of outputs and several, tiles that are
# full and that are not, more tiles than the interpreter has programs, sides that are odd.
CASES = [
    (16, 64, 1, 16, 16, 2),
    (64, 128, 2, 8, 8, 9),
    (128, 256, 2, 16, 16, 3),
    (128, 16, 1, 3, 5, 1),
    (32, 32, 2, 7, 5, 3),
    (16, 16, 2, 1, 1, 2),
]
ids = ["-".join(map(str, case)) for case in CASES]
Case = tuple[int, int, int, int, int, int]


def draw(case: Case, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor, int]:
    """Images, weights, a gradient and the stride; weights are what bfloat16 can say."""
    inputs, outputs, stride, height, width, count = case
    generator = torch.Generator().manual_seed(inputs + outputs)
    x = torch.randn(count, inputs, height, width, generator=generator).bfloat16()
    w = (torch.randn(outputs, inputs, 1, 1, generator=generator) / inputs**0.5).bfloat16().float()
    side = -(-height // stride), -(-width // stride)
    dy = torch.randn(count, outputs, *side, generator=generator).bfloat16()
    return x.to(device).to(memory_format=LAST), w.to(device), dy.to(device), stride


def ours(x: Tensor, w: Tensor, dy: Tensor, stride: int) -> tuple[Tensor, Tensor, Tensor]:
    from autodo.models import conv1x1_triton

    assert conv1x1_triton.fits(x, w, stride)
    x, w = (t.clone(memory_format=torch.preserve_format).requires_grad_() for t in (x, w))
    y = conv1x1_triton.convolution(x, w, stride)
    return y.detach(), *torch.autograd.grad(y, (x, w), dy)


def error(found: Tensor, true: Tensor) -> float:
    return float((found.double() - true).norm() / true.norm())


def test_it_is_a_convolution_with_the_names_of_torch() -> None:
    mine, theirs = Conv1x1(8, 16, 2), nn.Conv2d(8, 16, 1, stride=2, bias=False)
    theirs.load_state_dict(mine.state_dict())
    x = torch.randn(2, 8, 9, 7)
    assert torch.equal(mine(x), theirs(x))


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@pytest.mark.skipif(INTERPRETED, reason="it is what starts the interpreter")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run as they are")
def test_the_kernels_in_the_interpreter() -> None:
    pass_in_interpreter(__file__)


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_it_is_the_convolution_and_its_gradients(case: Case, device: str) -> None:
    x, w, dy, stride = draw(case, device)
    y, dx, dw = ours(x, w, dy, stride)
    x64, w64 = x.double().requires_grad_(), w.double().requires_grad_()
    true_y = F.conv2d(x64, w64, stride=stride)
    true_dx, true_dw = torch.autograd.grad(true_y, (x64, w64), dy.double())
    assert y.dtype == dx.dtype == torch.bfloat16
    assert y.is_contiguous(memory_format=LAST)
    assert dx.is_contiguous(memory_format=LAST)
    assert (dw.dtype, dw.stride()) == (torch.float32, w.stride())
    # A unit in the last of bfloat16's 8 bits: the interpreter cuts off where a GPU rounds.
    assert error(y, true_y.detach()) < 2**-7
    assert error(dx, true_dx) < 2**-7
    assert torch.equal(dx == 0, true_dx == 0)  # just where the stride leaves pixels out
    assert error(dw, true_dw) < 1e-5


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
def test_it_says_which_layers_it_is_for() -> None:
    from autodo.models.conv1x1_triton import fits

    x, w, _, stride = draw(CASES[0])
    assert fits(x, w, stride)
    assert not fits(x, w, 3)
    assert not fits(x.float(), w, stride)
    assert not fits(x.contiguous(), w, stride)
    assert not fits(x[:0], w, stride)
    assert not fits(x, w.new_zeros(160, 16, 1, 1), stride)
    assert not fits(x.new_zeros(2, 48, 4, 4).to(memory_format=LAST), w.new_zeros(64, 48, 1, 1), 1)


@pytest.mark.skipif(not HAS_TRITON or INTERPRETED, reason="needs Triton's compiler")
@pytest.mark.parametrize("case", CASES[:3], ids=ids[:3])
def test_the_kernels_compile_for_hopper(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    from autodo.models import conv1x1_triton

    names = ("_forward", "_to_inputs", "_to_weights")
    compiled: list[Any] = compile_only(monkeypatch, conv1x1_triton, *names)
    ours(*draw(case))
    assert len(compiled) == 3
    for kernel in compiled:
        assert "sm_90" in kernel.asm["ptx"]


@needs_gpu
@pytest.mark.parametrize("case", [(16, 64, 1, 32, 32, 64), (64, 128, 2, 32, 32, 64)], ids=str)
def test_gpu_it_repeats_bit_for_bit_and_can_be_recorded(case: Case) -> None:
    x, w, dy, stride = draw(case, "cuda")
    first = ours(x, w, dy, stride)
    step = Recorded(lambda x, dy: ours(x, w, dy, stride), torch.device("cuda"))
    for _ in range(WARM_UP + 3):
        for a, b in zip(first, step(x, dy), strict=True):
            assert torch.equal(a, b)


@needs_gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or not is_hopper(torch.device("cuda", 0)), reason="needs Hopper"
)
def test_gpu_skip_connections_of_a_network_are_done_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from autodo.models import conv1x1_triton

    asked = []

    def noted(x: Tensor, weight: Tensor, stride: int) -> Tensor:
        asked.append((*weight.shape[:2], stride))
        return F.conv2d(x, weight, stride=stride)

    monkeypatch.setattr(conv1x1_triton, "convolution", noted)
    model = WideResNet(10, 4, channels=3, num_classes=10).cuda().to(memory_format=LAST)
    images = torch.rand(4, 3, 32, 32, device="cuda").to(memory_format=LAST)
    model(images)
    assert asked == []  # float32 stays float32
    with torch.autocast("cuda", torch.bfloat16):
        model(images)
    assert asked == [(64, 16, 1), (128, 64, 2), (256, 128, 2)]
    monkeypatch.setattr(Conv1x1, "fast", False)
    with torch.autocast("cuda", torch.bfloat16):
        model(images)
    assert len(asked) == 3
