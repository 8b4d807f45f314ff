"""NormCELU against batch norm and CELU; the fused kernels against both.

Without a GPU the kernels run in Triton's interpreter, which has to be chosen before Triton is
imported: one test starts the others again, in a process of their own.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hopper import compile_only
from interpreter import HAS_TRITON, INTERPRETED, needs_gpu, needs_interpreter, pass_in_interpreter
from torch import Tensor, nn

from autodo.models.norm_celu import NormCELU
from autodo.models.wide_resnet import WideResNet

SHAPES = [(2, 16, 5, 7), (3, 160, 8, 8), (1, 640, 1, 1), (4, 48, 3, 3), (64, 32, 32, 32)]
AWKWARD_SHAPES = [
    (1, 16, 16, 16),  # a whole number of blocks and of tiles
    (2, 160, 8, 8),
    (2, 16, 32, 30),  # more blocks than programs, the last not whole
    (3, 160, 9, 7),
    (1, 640, 3, 3),
    (2, 64, 9, 8),
    (5, 1, 37, 29),  # columns that no power of two divides, and few that one does
    (2, 3, 20, 31),
    (3, 7, 25, 25),
    (2, 24, 19, 17),
    (1, 2048, 3, 5),  # more columns than a tile has numbers
    (1, 160, 1, 1),
    (1, 3, 1, 1),
]
AWKWARD_CASES = [(shape, torch.float32) for shape in AWKWARD_SHAPES] + [
    (shape, dtype) for shape in AWKWARD_SHAPES[1:4] for dtype in (torch.float16, torch.bfloat16)
]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def layers(columns: int) -> tuple[NormCELU, nn.BatchNorm2d]:
    torch.manual_seed(columns)
    one, two = NormCELU(columns), nn.BatchNorm2d(columns)
    for parameter in (one.weight, one.bias):
        nn.init.normal_(parameter, 0.5)
    nn.init.uniform_(one.running_var, 0.5, 2)
    nn.init.normal_(one.running_mean)
    two.load_state_dict(one.state_dict())
    return one, two


def images(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.randn(shape, generator=generator) + 3  # a mean that is far from zero
    return x.to(memory_format=torch.channels_last)


@pytest.mark.parametrize("training", [True, False])
def test_it_is_batch_norm_then_celu(training: bool) -> None:
    ours, theirs = layers(16)
    ours.train(training), theirs.train(training)
    x, residual = images((2, 16, 5, 7)), images((2, 16, 5, 7), 1)
    torch.testing.assert_close(ours(x), F.celu(theirs(x)))
    s, y = ours.add(x, residual)
    torch.testing.assert_close(s, x + residual)
    torch.testing.assert_close(y, F.celu(theirs(x + residual)))
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


def run(
    layer: NormCELU, x: Tensor, residual: Tensor | None, grads: tuple[Tensor, Tensor]
) -> dict[str, Tensor]:
    """Outputs, running moments and gradients of one pass."""
    x = x.clone().requires_grad_()
    inputs = {"x": x}
    if residual is None:
        s, y = x, layer(x)
    else:
        inputs["residual"] = residual.clone().requires_grad_()
        s, y = layer.add(x, inputs["residual"])
    if layer.weight.requires_grad:
        inputs |= {"weight": layer.weight, "bias": layer.bias}
    total = (y.float() * grads[0]).sum() + (s.float() * grads[1]).sum()
    found = torch.autograd.grad(total, list(inputs.values()))
    out = {f"d{name}": g for name, g in zip(inputs, found, strict=True)}
    return out | {"s": s.detach(), "y": y.detach(), **dict(layer.named_buffers())}


def assert_close(ours: dict[str, Tensor], plain: dict[str, Tensor], tolerance: float) -> None:
    """To a part of the largest value."""
    for name, expected in plain.items():
        scale = float(expected.float().abs().max()) or 1.0
        torch.testing.assert_close(
            ours[name].float(), expected.float(), atol=tolerance * scale, rtol=0, msg=name
        )


@needs_gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fused_on_the_gpu_equals_plain(
    shape: tuple[int, ...], add: bool, training: bool, dtype: torch.dtype
) -> None:
    """In float32 to 1e-5 of the largest value; in bfloat16 to its rounding."""
    if training and shape[0] * shape[2] * shape[3] == 1:
        pytest.skip("torch's batch norm refuses to train on one value per channel")
    layer, _ = layers(shape[1])
    layer.train(training).requires_grad_(training)
    x, residual, g0, g1 = (images(shape, k).cuda() for k in range(4))
    x, residual = x.to(dtype), residual.to(dtype) if add else None
    results = []
    for fused in (True, False):
        copy = NormCELU(shape[1]).cuda().train(training).requires_grad_(training)
        copy.load_state_dict(layer.state_dict())
        copy.fused = fused
        assert copy._can_fuse(x) == fused
        results.append(run(copy, x, residual, (g0, g1)))
    assert_close(*results, TOLERANCE[dtype])


@needs_gpu
def test_a_whole_network_learns_alike_on_the_gpu_with_and_without_the_kernels() -> None:
    losses = {}
    for fused in (True, False):
        torch.manual_seed(0)
        model = WideResNet(10, 2, channels=3, num_classes=10)
        model = model.cuda().to(memory_format=torch.channels_last)
        for module in model.modules():
            if isinstance(module, NormCELU):
                module.fused = fused
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        x = torch.rand(64, 3, 32, 32, generator=torch.Generator().manual_seed(0)).cuda()
        x = x.to(memory_format=torch.channels_last)
        labels = torch.arange(64).cuda() % 10
        for _ in range(5):
            loss = F.cross_entropy(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses[fused] = loss.item()
    assert losses[True] == pytest.approx(losses[False], rel=1e-2)


@needs_gpu
def test_fused_results_on_the_gpu_repeat_bit_for_bit() -> None:
    layer, _ = layers(160)
    layer.cuda()
    state = {k: v.clone() for k, v in layer.state_dict().items()}
    x, residual, g0, g1 = (images((8, 160, 16, 16), k).cuda().bfloat16() for k in range(4))
    results = []
    for _ in range(2):
        layer.load_state_dict(state)
        results.append({k: v.clone() for k, v in run(layer, x, residual, (g0, g1)).items()})
    for name in results[0]:
        assert torch.equal(results[0][name], results[1][name]), name


@pytest.fixture(autouse=INTERPRETED)
def _loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """From numpy 2.4 on an array of one number is no int, which loops of the interpreter need."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_all(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch_all)


class Fused(NormCELU):
    """By the kernels, wherever the data are."""

    def _can_fuse(self, x: Tensor) -> bool:
        return True


def both(columns: int, training: bool) -> tuple[NormCELU, NormCELU]:
    """A layer by the kernels and the same by plain operations."""
    plain, _ = layers(columns)
    fused = Fused(columns)
    fused.load_state_dict(plain.state_dict())
    for layer in (fused, plain):
        layer.train(training).requires_grad_(training)
    return fused, plain


def inputs(shape: tuple[int, ...], dtype: torch.dtype, add: bool) -> tuple[Any, ...]:
    x, residual, g0, g1 = (images(shape, k) for k in range(4))
    return x.to(dtype), residual.to(dtype) if add else None, (g0, g1)


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@pytest.mark.skipif(INTERPRETED, reason="it is what starts the interpreter")
def test_the_kernels_in_the_interpreter() -> None:
    pass_in_interpreter(__file__)


@needs_interpreter
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("add", [False, True], ids=["alone", "add"])
@pytest.mark.parametrize(("shape", "dtype"), AWKWARD_CASES, ids=str)
def test_interpreted_kernels_equal_plain_operations(
    shape: tuple[int, ...], add: bool, training: bool, dtype: torch.dtype
) -> None:
    if training and shape[0] * shape[2] * shape[3] == 1:
        pytest.skip("torch's batch norm refuses to train on one value per channel")
    fused, plain = both(shape[1], training)
    x, residual, grads = inputs(shape, dtype, add)
    assert_close(run(fused, x, residual, grads), run(plain, x, residual, grads), TOLERANCE[dtype])


@needs_interpreter
@pytest.mark.parametrize("columns", [160, 7, 1])
def test_interpreted_training_on_one_row(columns: int) -> None:
    """The mean is the row and the variance is 0, so that y = celu(bias), whatever the row is."""
    fused, _ = both(columns, training=True)
    before = {name: value.clone() for name, value in fused.named_buffers()}
    x, residual, grads = inputs((1, columns, 1, 1), torch.float32, add=True)
    out = run(fused, x, residual, grads)
    s, moved = (x + residual).flatten(), fused.momentum
    expected = {
        "y": F.celu(fused.bias.detach()).view_as(x),
        "dx": grads[1], "dresidual": grads[1], "dweight": torch.zeros(columns),
        "dbias": (grads[0].flatten() * fused.bias.detach().clamp(max=0).exp()),
        "running_mean": before["running_mean"].lerp(s, moved),
        "running_var": before["running_var"] * (1 - moved),
    }  # fmt: skip
    # The mean is taken from the sum with an error of float32, which 1/sqrt(eps) makes larger.
    assert_close(out, expected, 5e-3)


@needs_interpreter
def test_interpreted_sums_of_more_parts_than_one_round_of_the_second_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from autodo.models import norm_celu_triton

    monkeypatch.setattr(norm_celu_triton, "multiprocessors", lambda device: 132)
    x, residual, grads = inputs((1, 64, 129, 129), torch.float32, add=False)
    assert norm_celu_triton._Cut(x).parts(5) > norm_celu_triton.MOMENTS[0]
    fused, plain = both(64, training=True)
    # Torch's own sums in float32 are the less exact ones here.
    exact = run(plain.double(), x.double(), residual, grads)
    assert_close(run(fused, x, residual, grads), exact, 1e-5)


@needs_interpreter
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("shape", [(2, 24, 19, 17), (1, 16, 16, 16)], ids=str)
def test_interpreted_results_repeat_bit_for_bit_also_with_wide_indices(
    shape: tuple[int, ...], training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autodo.models import norm_celu_triton

    x, residual, grads = inputs(shape, torch.bfloat16, add=True)
    results = []
    for narrow in (2**31, 2**31, 0):
        monkeypatch.setattr(norm_celu_triton, "NARROW", narrow)
        cut = norm_celu_triton._Cut(x)
        assert cut.strip["WIDE"] == cut.tile["WIDE"] == (narrow == 0)
        results.append(run(both(shape[1], training)[0], x, residual, grads))
    for name, first in results[0].items():
        assert torch.equal(first, results[1][name]), name
        assert torch.equal(first, results[2][name]), name


def assert_nan_passes_through(add: bool, dtype: torch.dtype, device: str) -> None:
    """In eval mode it is where it was; in training mode, as in torch, in its whole column."""
    x, residual, grads = inputs((2, 24, 5, 7), dtype, add)
    x[1, 3, 2, 4] = float("nan")
    here, column = x.isnan(), torch.arange(24) == 3
    x, residual = x.to(device), residual.to(device) if add else None
    grads = tuple(g.to(device) for g in grads)
    out = run(both(24, training=False)[0].to(device), x, residual, grads)
    for name in ("y", "dx", *(("s", "dresidual") if add else ())):
        assert torch.equal(out[name].isnan().cpu(), here), name
    out = run(both(24, training=True)[0].to(device), x, residual, grads)
    for name in ("y", "dx", *(("dresidual",) if add else ())):
        assert torch.equal(out[name].isnan().cpu(), column.view(-1, 1, 1).expand_as(here)), name
    for name in ("running_mean", "running_var", "dweight", "dbias"):
        assert torch.equal(out[name].isnan().cpu(), column), name


@needs_interpreter
@pytest.mark.parametrize("add", [False, True], ids=["alone", "add"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_interpreted_nan_passes_through(add: bool, dtype: torch.dtype) -> None:
    assert_nan_passes_through(add, dtype, "cpu")


@needs_gpu
@pytest.mark.parametrize("add", [False, True], ids=["alone", "add"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_nan_passes_through_on_the_gpu(add: bool, dtype: torch.dtype) -> None:
    assert_nan_passes_through(add, dtype, "cuda")


@needs_interpreter
def test_interpreted_nan_of_the_gradient_passes_through() -> None:
    for training in (True, False):
        x, residual, grads = inputs((2, 24, 5, 7), torch.float32, add=True)
        grads[0][0, 5, 1, 1] = float("nan")
        out = run(both(24, training)[0], x, residual, grads)
        assert out["dx"][0, 5, 1, 1].isnan()
        assert not out["dx"][:, 6:].isnan().any()


@pytest.mark.skipif(not HAS_TRITON or INTERPRETED, reason="needs Triton as a compiler")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run as they are")
@pytest.mark.parametrize("shape", [(2, 160, 8, 8), (1, 16, 5, 5), (1, 1, 1, 1), (2, 3, 4, 5)])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_kernels_compile_for_hopper(
    shape: tuple[int, ...], training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton compiles without a GPU, and is stricter than its interpreter."""
    from autodo.models import norm_celu_triton

    names = ("_sums", "_moments", "_apply", "_backward_sums", "_backward_moments",
             "_backward_apply", "_evaluate")  # fmt: skip
    compiled = compile_only(monkeypatch, norm_celu_triton, *names)
    x, residual, grads = inputs(shape, torch.bfloat16, add=True)
    run(both(shape[1], training)[0], x, residual, grads)
    assert len(compiled) == (6 if training else 2)
    for kernel in compiled:
        assert "sm_90" in kernel.asm["ptx"]
        # These return the other number where one is NaN; in the interpreter they return NaN.
        assert not re.search(r"\b(min|max)\.(ftz\.)?f32", kernel.asm["ptx"])
