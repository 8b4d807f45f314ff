"""The networks of the paper: their sizes, shapes, smoothness, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from autodo.errors import InputError
from autodo.models import Normalize, ResNet18, SmallCNN, WideResNet, find_head, pixel_statistics
from autodo.models.pool import pooled


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_wrn_28_10_has_the_published_size() -> None:
    with torch.device("meta"):
        model = WideResNet(28, 10, channels=3, num_classes=10)
    assert parameters(model) == 36_479_194  # 36.48 million is the published figure for CIFAR-10


def test_biases_of_the_convolutions_would_change_nothing() -> None:
    """Why the network has none: the normalisations subtract whatever they add."""
    torch.manual_seed(0)
    model = WideResNet(10, 1, channels=3, num_classes=10).double()
    images = torch.rand(4, 3, 16, 16, dtype=torch.float64)
    without = model(images)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.bias = nn.Parameter(torch.randn(module.out_channels).double())
    torch.testing.assert_close(model(images), without, atol=1e-10, rtol=0)


@pytest.mark.parametrize(("depth", "blocks"), [(10, 3), (16, 6), (28, 12), (40, 18)])
def test_wrn_depth_is_the_number_of_convolutions_along_the_main_path(
    depth: int, blocks: int
) -> None:
    model = WideResNet(depth, 1, channels=3, num_classes=10)
    main = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(model.stages) == blocks
    assert len(main) + 1 + 2 == depth  # the linear head, and two of the three skips' convolutions


def test_wrn_halves_the_resolution_twice() -> None:
    model = WideResNet(10, 1, channels=3, num_classes=10)
    sizes: list[torch.Size] = []
    model.bn.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].shape))
    model(torch.zeros(1, 3, 32, 32))
    assert sizes == [(1, 64, 8, 8)]


@pytest.mark.parametrize("depth", [4, 9, 12, 27])
def test_wrn_of_a_depth_that_does_not_exist(depth: int) -> None:
    with pytest.raises(InputError, match=f"WRN depth is {depth}"):
        WideResNet(depth, 1, channels=3, num_classes=10)


def test_wrn_without_width() -> None:
    with pytest.raises(InputError, match="WRN width is 0"):
        WideResNet(10, 0, channels=3, num_classes=10)


@pytest.mark.parametrize(
    ("stem", "classes", "count"), [("imagenet", 1000, 11_689_512), ("small", 10, 11_173_962)]
)
def test_resnet18_has_the_published_size(stem: str, classes: int, count: int) -> None:
    with torch.device("meta"):
        model = ResNet18(channels=3, num_classes=classes, stem=stem)
    assert parameters(model) == count


@pytest.mark.parametrize(("stem", "size", "left"), [("imagenet", 224, 7), ("small", 32, 4)])
def test_resnet18_stems_leave_the_customary_resolution(stem: str, size: int, left: int) -> None:
    model = ResNet18(channels=3, num_classes=10, stem=stem).eval()
    with torch.no_grad():
        assert model.stages(model.stem(torch.zeros(1, 3, size, size))).shape[-2:] == (left, left)


def test_resnet18_with_relu_is_another_function_of_the_same_weights() -> None:
    celu = ResNet18(channels=1, num_classes=3, stem="small").eval()
    relu = ResNet18(channels=1, num_classes=3, stem="small", activation="relu").eval()
    relu.load_state_dict(celu.state_dict())
    x = torch.randn(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    kinds = {type(m).__name__ for m in relu.modules()}
    assert "ReLU" in kinds
    assert "CELU" not in kinds
    with torch.no_grad():
        assert not torch.allclose(celu(x), relu(x))


@pytest.mark.parametrize("choice", [{"stem": "tiny"}, {"activation": "gelu"}])
def test_resnet18_refuses_other_choices(choice: dict[str, str]) -> None:
    with pytest.raises(InputError, match="the choices are"):
        ResNet18(channels=3, num_classes=10, **choice)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "model",
    [
        WideResNet(10, 1, channels=2, num_classes=5),
        ResNet18(channels=2, num_classes=5, stem="small"),
        SmallCNN(2, 5),
    ],
    ids=lambda model: type(model).__name__,
)
def test_networks_end_in_their_linear_head_and_are_smooth(model: nn.Module) -> None:
    assert find_head(model, torch.rand(2, 2, 32, 32)) is model.fc
    assert not any(isinstance(m, nn.ReLU) for m in model.modules())
    # C1, which ReLU is not: the second derivative in the input exists and is not zero.
    model.double().eval()
    x = torch.rand(1, 2, 32, 32, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x)[0, 0], x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    assert float(second.abs().max()) > 0


def test_the_small_network_pools_before_celu_and_is_the_same_function() -> None:
    model = SmallCNN(3, 5).eval()
    pools = (nn.MaxPool2d, nn.AdaptiveMaxPool2d)
    layers = list(model.features)
    for k, layer in enumerate(layers[:-1]):
        if isinstance(layer, pools):
            assert isinstance(layers[k + 1], nn.CELU)
            layers[k : k + 2] = [layers[k + 1], layer]
    x = torch.rand(4, 3, 12, 10)
    late = model.features(model.normalize(x))
    assert torch.equal(nn.Sequential(*layers)(model.normalize(x)), late)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_pooling_is_the_mean_and_its_gradient_keeps_the_layout(layout: torch.memory_format) -> None:
    x = torch.randn(2, 6, 4, 5, dtype=torch.float64).contiguous(memory_format=layout)
    x.requires_grad_()
    y = pooled(x)
    torch.testing.assert_close(y, x.mean((2, 3)))
    (found,) = torch.autograd.grad(y.square().sum(), x)
    (true,) = torch.autograd.grad(x.mean((2, 3)).square().sum(), x)
    torch.testing.assert_close(found, true)
    assert found.is_contiguous(memory_format=layout)


def test_pixels_are_normalised_by_statistics_that_travel_with_the_weights() -> None:
    images = torch.randint(0, 256, (3000, 3, 4, 4), dtype=torch.uint8)
    mean, std = pixel_statistics(images)
    unit = images.double() / 255
    assert mean == pytest.approx(unit.mean((0, 2, 3)).tolist(), abs=1e-6)
    assert std == pytest.approx(unit.std((0, 2, 3), correction=0).tolist(), abs=1e-6)
    normal = Normalize(mean, std)(unit.float())
    assert normal.mean((0, 2, 3)).tolist() == pytest.approx([0] * 3, abs=1e-4)
    model = WideResNet(10, 1, channels=3, num_classes=2, mean=mean, std=std)
    assert model.state_dict()["normalize.mean"].flatten().tolist() == pytest.approx(mean)


def test_a_channel_that_never_changes_is_not_divided_by_zero() -> None:
    _, std = pixel_statistics(torch.full((5, 1, 2, 2), 7, dtype=torch.uint8))
    assert std[0] > 0
