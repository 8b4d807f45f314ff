"""NormCELU against batch norm and CELU; the fused kernels against both, where there is a GPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autodo.kernels import has_triton
from autodo.models.norm_celu import NormCELU
from autodo.models.wide_resnet import WideResNet

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or not has_triton(),
    reason="the fused kernels need a CUDA device and Triton",
)
SHAPES = [(2, 16, 5, 7), (3, 160, 8, 8), (1, 640, 1, 1), (4, 48, 3, 3), (64, 32, 32, 32)]


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
    ours, plain = results
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    for name, expected in plain.items():
        scale = float(expected.float().abs().max()) or 1.0
        torch.testing.assert_close(
            ours[name].float(), expected.float(), atol=tolerance * scale, rtol=0, msg=name
        )


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
