"""Networks by name: ours, timm's, the user's; and every name that means none."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from autodo import models
from autodo.errors import InputError
from autodo.models.registry import find

SHAPE = {"channels": 3, "num_classes": 4, "image_size": 32}


@pytest.mark.parametrize(
    ("spec", "kind"),
    [("small_cnn", "SmallCNN"), ("wrn-10-2", "WideResNet"), ("resnet18", "ResNet18")],
)
def test_names_of_ours(spec: str, kind: str) -> None:
    model = models.build(spec, **SHAPE, mean=[0.1, 0.2, 0.3], std=[1.0, 2.0, 3.0])
    assert type(model).__name__ == kind
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 4)
    assert model.normalize.mean.flatten().tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert model.normalize.std.flatten().tolist() == [1.0, 2.0, 3.0]


def test_depth_and_width_of_wrn_are_read_from_its_name() -> None:
    model = models.build("wrn-16-3", **SHAPE)
    assert len(model.stages) == 6
    assert model.fc.in_features == 64 * 3


@pytest.mark.parametrize(("size", "kernel"), [(32, 3), (64, 3), (96, 7), (224, 7)])
def test_resnet18_takes_its_stem_from_the_image_size(size: int, kernel: int) -> None:
    model = models.build("resnet18", channels=3, num_classes=4, image_size=size)
    assert model.stem[0].kernel_size == (kernel, kernel)


@pytest.mark.parametrize(
    ("spec", "near"),
    [
        ("resnet", "resnet18"),
        ("wrn28-10", "wrn-28-10"),
        ("WRN-28-10", "wrn-28-10"),
        ("smallcnn", "small_cnn"),
        ("timm:", "timm:NAME"),
        (":f", None),
        ("a:b:c", None),
        ("", None),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(spec: str, near: str | None) -> None:
    with pytest.raises(InputError, match="names no network") as caught:
        find(spec)
    if near is not None:
        assert near in caught.value.cause


def test_wrn_that_does_not_exist_is_refused_before_anything_is_built() -> None:
    with pytest.raises(InputError, match="WRN depth is 27"):
        find("wrn-27-10")


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module with the two functions of timm that are called, in their published form."""
    module = ModuleType("timm")

    def create_model(name: str, *, in_chans: int, num_classes: int) -> nn.Module:
        if name == "spoilt":
            raise RuntimeError("no such luck")
        return nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(in_chans, num_classes)
        )

    module.create_model = create_model  # type: ignore[attr-defined]
    module.list_models = lambda: ["resnet26", "convnext_tiny", "spoilt"]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", module)
    return module


def test_timm_is_asked_for_channels_and_classes_and_fed_normalised_pixels(timm: object) -> None:
    model = models.build("timm:resnet26", **SHAPE, mean=[0.5] * 3, std=[0.5] * 3)
    images = torch.rand(2, 3, 8, 8)
    assert model(images).shape == (2, 4)
    assert torch.equal(model(images), model[1]((images - 0.5) / 0.5))
    assert models.find_head(model, images).out_features == 4


def test_timm_names_are_checked_and_the_nearest_told(timm: object) -> None:
    assert find("timm:resnet26.bt_in1k")
    with pytest.raises(InputError, match="resnet26"):
        find("timm:resnet62")


def test_timm_that_cannot_build_is_named(timm: object) -> None:
    with pytest.raises(InputError, match=r"--model timm:spoilt cannot be built.*no such luck"):
        models.build("timm:spoilt", **SHAPE)


def test_without_timm_the_cure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match="needs the timm library") as caught:
        find("timm:resnet26")
    assert "pip install timm" in caught.value.cure


def test_own_functions_get_the_image_size_if_they_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("nets_of_registry.py").write_text(
        "from torch import nn\n"
        "def plain(channels, num_classes):\n"
        "    return nn.Linear(channels, num_classes)\n"
        "def sized(channels, num_classes, image_size):\n"
        "    return nn.Linear(image_size, num_classes)\n"
        "def open(channels, num_classes, **options):\n"
        "    return nn.Linear(options['image_size'], num_classes)\n"
    )
    assert models.build("nets_of_registry:plain", **SHAPE).in_features == 3
    assert models.build("nets_of_registry:sized", **SHAPE).in_features == 32
    assert models.build("nets_of_registry:open", **SHAPE).in_features == 32
