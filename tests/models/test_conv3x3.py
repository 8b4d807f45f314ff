"""Conv3x3 against nn.Conv2d, and its kernels against convolutions in float64."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autodo.cuda import is_hopper
from autodo.models import conv3x3_cuda
from autodo.models.conv3x3 import Conv3x3
from autodo.models.wide_resnet import WideResNet
from autodo.train.recorded import Recorded

CUDA = torch.device("cuda", 0)
needs_hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or not is_hopper(CUDA), reason="needs a Hopper GPU"
)
LAST = torch.channels_last

# (inputs, outputs, side, images): every tile and side, a whole number of rounds or not, 32 inputs
# that remain of 64, few images and an odd number of them.
CASES = [
    (160, 160, 32, 40),
    (160, 160, 32, 1),
    (320, 160, 16, 3),
    (160, 320, 16, 70),
    (640, 320, 8, 4),
    (160, 160, 8, 12),
    (64, 64, 32, 5),
    (64, 192, 16, 3),
    (128, 256, 16, 2),
    (192, 128, 8, 8),
    (480, 64, 32, 2),
]


def draw(inputs: int, outputs: int, side: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Images and a gradient in bfloat16, weights in float32, all of unit size."""
    generator = torch.Generator().manual_seed(inputs + outputs + side + count)
    x = torch.randn(count, inputs, side, side, generator=generator).to(CUDA, torch.bfloat16)
    w = torch.randn(outputs, inputs, 3, 3, generator=generator).to(CUDA) / (3 * inputs**0.5)
    dy = torch.randn(count, outputs, side, side, generator=generator).to(CUDA, torch.bfloat16)
    return x.to(memory_format=LAST), w, dy.to(memory_format=LAST)


def in_float64(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """y, dx and dw with weights rounded to bfloat16, as autocast does, and nothing else."""
    x64, w64 = x.double().requires_grad_(), w.bfloat16().double().requires_grad_()
    y = F.conv2d(x64, w64, padding=1)
    return y.detach(), *torch.autograd.grad(y, (x64, w64), dy.double())


def ours(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, w = x.clone(memory_format=torch.preserve_format).requires_grad_(), w.clone().requires_grad_()
    y = conv3x3_cuda.convolution(x, w)
    return y.detach(), *torch.autograd.grad(y, (x, w), dy)


def test_it_is_a_convolution_with_the_names_of_torch() -> None:
    mine, theirs = Conv3x3(8, 16), nn.Conv2d(8, 16, 3, padding=1, bias=False)
    theirs.load_state_dict(mine.state_dict())
    x = torch.randn(2, 8, 9, 7)
    assert torch.equal(mine(x), theirs(x))


@pytest.mark.parametrize(("blocks", "tiles"), [(6, 2048), (12, 2048), (20, 512), (80, 128), (1, 8)])
def test_splits_are_of_at_least_a_tile_and_fill_the_device(blocks: int, tiles: int) -> None:
    splits = conv3x3_cuda._splits(blocks, tiles, 132)
    assert 1 <= splits <= tiles
    rounds = -(-blocks * splits // 132)
    assert blocks * splits > 0.85 * rounds * 132 or splits == tiles


@pytest.mark.parametrize(
    ("name", "sides", "tiles"),
    [
        ("convolve", conv3x3_cuda.SIDES, conv3x3_cuda.TILES),
        ("weight_gradient", conv3x3_cuda.SIDES, conv3x3_cuda.GRADIENT_TILES),
    ],
)
def test_a_program_asks_for_memory_that_there_is(
    name: str, sides: tuple[int, ...], tiles: tuple[int, ...]
) -> None:
    for side, tile in itertools.product(sides, tiles):
        source, shared = conv3x3_cuda.program(name, side, tile)
        assert f"m64n{tile}k16" in source
        assert 100_000 < shared <= conv3x3_cuda.SHARED_MEMORY


def test_what_is_left_to_torch_is_the_gradient_too() -> None:
    generator = torch.Generator().manual_seed(0)
    x, dy = (torch.randn(2, 64, 16, 16, generator=generator).bfloat16() for _ in range(2))
    w = torch.randn(64, 64, 3, 3, generator=generator, requires_grad=True)
    (true,) = torch.autograd.grad(F.conv2d(x.float(), w, padding=1), w, dy.float())
    found = conv3x3_cuda.cudnn_weight_gradient(x, dy, w.detach())
    assert found.dtype == torch.float32
    assert float((found - true).norm() / true.norm()) < 2**-8


@needs_hopper
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("own", [True, False])
def test_gpu_it_is_the_convolution_and_its_gradients(
    case: tuple[int, int, int, int], own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conv3x3_cuda, "_cudnn_is_slow", lambda *_: own)
    x, w, dy = draw(*case)
    assert conv3x3_cuda.fits(x, w)
    y, dx, dw = ours(x, w, dy)
    true_y, true_dx, true_dw = in_float64(x, w, dy)
    assert y.dtype == dx.dtype == torch.bfloat16
    assert y.is_contiguous(memory_format=LAST)
    assert dx.is_contiguous(memory_format=LAST)
    assert dw.dtype == torch.float32
    assert dw.stride() == w.stride()
    # Half a unit in the last of bfloat16's 8 bits; sums of float32 add next to nothing.
    for found, true in ((y, true_y), (dx, true_dx)):
        error = (found.double() - true).abs()
        assert float((error - true.abs() * 2**-8).max()) < 1e-4 * float(true.abs().max())
    # Where cuDNN does it, it comes rounded to bfloat16.
    close = 1e-5 if own else 2**-8
    assert float((dw.double() - true_dw).norm() / true_dw.norm()) < close


@needs_hopper
@pytest.mark.parametrize("layout", [torch.contiguous_format, LAST])
def test_gpu_weights_may_lie_in_either_layout(layout: torch.memory_format) -> None:
    x, w, dy = draw(160, 64, 16, 2)
    other = ours(x, w.contiguous(memory_format=layout), dy)
    for a, b in zip(ours(x, w, dy), other, strict=True):
        assert torch.equal(a, b)


@needs_hopper
def test_gpu_it_repeats_bit_for_bit_and_can_be_recorded() -> None:
    x, w, dy = draw(160, 160, 32, 64)
    first = ours(x, w, dy)
    step = Recorded(lambda x, dy: ours(x, w, dy), CUDA)
    for _ in range(6):
        for a, b in zip(first, step(x, dy), strict=True):
            assert torch.equal(a, b)


@needs_hopper
def test_gpu_only_what_is_asked_for_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, dy = draw(64, 64, 16, 2)
    x.requires_grad_()
    monkeypatch.setattr(conv3x3_cuda, "weight_gradient", None)  # a call would raise
    (dx,) = torch.autograd.grad(conv3x3_cuda.convolution(x, w), x, dy)
    _, true, _ = in_float64(x.detach(), w, dy)
    torch.testing.assert_close(dx.double(), true, rtol=2**-8, atol=1e-3)


@needs_hopper
@pytest.mark.parametrize(
    "reason",
    ["no autocast", "float32", "layout", "side", "channels", "three small images", "told not to"],
)
def test_gpu_else_torch_does_it(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv3x3_cuda, "convolution", None)
    inputs, side, count = {
        "side": (64, 24, 2),
        "channels": (48, 16, 2),
        "three small images": (64, 8, 3),
    }.get(reason, (64, 16, 2))
    layer = Conv3x3(inputs, 64).to(CUDA)
    layer.fast = reason != "told not to"
    x = torch.randn(count, inputs, side, side, device=CUDA).to(memory_format=LAST)
    if reason != "float32":
        x = x.bfloat16()
    if reason == "layout":
        x = x.contiguous()
    if reason == "no autocast":
        layer, x = layer.bfloat16(), x
        assert layer(x).dtype == torch.bfloat16
        return
    with torch.autocast("cuda", torch.bfloat16):
        assert layer(x).shape == (count, 64, side, side)


@needs_hopper
def test_gpu_a_network_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gradients are as near to those in float32 as with cuDNN's bfloat16."""
    torch.manual_seed(0)
    model = WideResNet(10, 10, channels=3, num_classes=10).to(CUDA).to(memory_format=LAST)
    images = torch.rand(16, 3, 32, 32, device=CUDA).to(memory_format=LAST)
    labels = torch.arange(16, device=CUDA) % 10

    def gradients(precision: torch.dtype) -> Tensor:
        model.zero_grad()
        with torch.autocast("cuda", precision, enabled=precision != torch.float32):
            loss = F.cross_entropy(model(images).float(), labels)
        loss.backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    true = gradients(torch.float32)
    mine = gradients(torch.bfloat16)
    monkeypatch.setattr(Conv3x3, "fast", False)
    theirs = gradients(torch.bfloat16)
    assert not torch.equal(mine, theirs)
    assert float((mine - true).norm()) < 1.1 * float((theirs - true).norm())
