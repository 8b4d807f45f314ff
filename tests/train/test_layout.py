"""Networks get their images channels last, and those that cannot take them so as they were."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import autodo
from autodo.data import Examples
from autodo.models import ResNet18, SmallCNN, WideResNet
from autodo.train.layout import give_layout

IMAGES = torch.rand(2, 3, 16, 16)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Views(nn.Module):
    """Flattens by ``view``, as many networks in tutorials do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm, self.dropout = nn.BatchNorm2d(8), nn.Dropout()
        self.fc = nn.Linear(8 * 16 * 16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        return self.fc(self.dropout(x.view(len(x), -1)))


@pytest.mark.parametrize(
    "model",
    [
        SmallCNN(3, 4),
        ResNet18(channels=3, num_classes=4),
        WideResNet(10, 1, channels=3, num_classes=4),
    ],
    ids=lambda model: type(model).__name__,
)
def test_our_networks_take_channels_last_and_say_the_same(model: nn.Module) -> None:
    model = model.eval()
    before = model(IMAGES)
    assert give_layout(model, IMAGES) == torch.channels_last
    after = model(IMAGES.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(after, before)


def test_a_network_that_views_keeps_its_layout_and_all_else() -> None:
    model = Views()
    model.norm.eval()
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    assert give_layout(model, IMAGES) == torch.contiguous_format
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert not model.norm.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
        assert tensor.is_contiguous()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu, id="gpu")])
def test_a_network_that_views_can_be_fitted(device: str) -> None:
    labels = torch.arange(64) % 4
    data = Examples.from_arrays(torch.rand(64, 3, 16, 16), labels)
    trusted = Examples.from_arrays(torch.rand(16, 3, 16, 16), labels[:16])
    config = autodo.Config(epochs=2, batch_size=16, hyper_batch_size=16, device=device)
    result = autodo.fit(Views(), data, trusted, config=config, progress=False)
    assert len(result.points["label_score"]) == 64
