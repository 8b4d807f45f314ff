"""From a name to a network: ours, timm's, or a function of the user's.

:func:`find` says at once whether a name means anything, before images are read; what it
gives is called with the shape of the data. :func:`build` does both.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from autodo.errors import InputError
from autodo.models.normalize import Normalize
from autodo.models.resnet import SMALL_IMAGE, ResNet18
from autodo.models.small_cnn import SmallCNN
from autodo.models.wide_resnet import WideResNet

KINDS = ("small_cnn", "wrn-28-10", "wrn-16-4", "resnet18", "timm:NAME", "module:function")
"""What a name can look like; WRN of any depth and width."""

_WRN = re.compile(r"wrn-(\d+)-(\d+)")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a network is built for."""

    channels: int
    num_classes: int
    image_size: int
    """Pixels a side."""
    mean: Sequence[float] | None = None
    """Of the pixels, per channel; it becomes part of the network."""
    std: Sequence[float] | None = None
    """Deviation of the pixels, likewise."""


Builder = Callable[[Shape], nn.Module]


def build(
    spec: str,
    *,
    channels: int,
    num_classes: int,
    image_size: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """The network that ``spec`` names; mean and deviation of the pixels become part of it.

    >>> network = build("wrn-10-1", channels=3, num_classes=10, image_size=32)
    >>> type(network).__name__, network.fc.in_features
    ('WideResNet', 64)
    """
    shape = Shape(
        channels=channels, num_classes=num_classes, image_size=image_size, mean=mean, std=std
    )
    return find(spec)(shape)


def find(spec: str) -> Builder:
    """The builder of a name, or the error that says which names there are."""
    if spec == "small_cnn":
        return _small_cnn
    if spec == "resnet18":
        return _resnet18
    if match := _WRN.fullmatch(spec):
        return _wide_resnet(int(match[1]), int(match[2]))
    if spec.startswith("timm:") and len(spec) > len("timm:"):
        return _timm(spec)
    if spec.count(":") == 1 and all(spec.split(":")):
        return _own(spec)
    near = difflib.get_close_matches(spec.lower(), KINDS, n=2, cutoff=0.4)
    raise InputError(
        f"--model {spec} names no network",
        "it is small_cnn, wrn-DEPTH-WIDTH, resnet18, timm:NAME, or module:function for your own"
        + (f"; the nearest is {' or '.join(near)}" if near else ""),
        "write for instance --model wrn-16-4, or --model mynet:build, with "
        "build(channels, num_classes) in mynet.py",
    )


def _small_cnn(shape: Shape) -> nn.Module:
    return SmallCNN(shape.channels, shape.num_classes, mean=shape.mean, std=shape.std)


def _resnet18(shape: Shape) -> nn.Module:
    return ResNet18(
        channels=shape.channels,
        num_classes=shape.num_classes,
        stem="small" if shape.image_size <= SMALL_IMAGE else "imagenet",
        mean=shape.mean,
        std=shape.std,
    )


def _wide_resnet(depth: int, width: int) -> Builder:
    WideResNet.check(depth, width)
    return lambda shape: WideResNet(
        depth,
        width,
        channels=shape.channels,
        num_classes=shape.num_classes,
        mean=shape.mean,
        std=shape.std,
    )


def _timm(spec: str) -> Builder:
    """A network of the timm library, untrained, with our normalisation before it."""
    name = spec.removeprefix("timm:")
    try:
        timm: Any = importlib.import_module("timm")
    except ImportError as error:
        raise InputError(
            f"--model {spec} needs the timm library",
            f"it cannot be imported here: {error}",
            "install it with pip install timm, or choose small_cnn, wrn-16-4 or resnet18",
        ) from error
    known = timm.list_models()
    # A tag after the dot names pretrained weights; list_models has names without it.
    if name.split(".")[0] not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        raise InputError(
            f"timm has no model {name!r}",
            f"the nearest names are {', '.join(near)}" if near else "no name is near it",
            "timm.list_models() shows them all",
        )

    def builder(shape: Shape) -> nn.Module:
        try:
            model = timm.create_model(name, in_chans=shape.channels, num_classes=shape.num_classes)
        except Exception as error:  # whatever a constructor of timm's raises for these arguments
            cure = "choose another network of timm"
            raise _model_error(spec, "cannot be built", error, cure) from error
        return nn.Sequential(Normalize.of(shape.channels, shape.mean, shape.std), model)

    return builder


def _own(spec: str) -> Builder:
    """A function of the user's, imported at once and called with (channels, num_classes)."""
    function = _imported(spec)

    def builder(shape: Shape) -> nn.Module:
        size = {"image_size": shape.image_size} if _accepts(function, "image_size") else {}
        try:
            model: nn.Module = function(shape.channels, shape.num_classes, **size)
        except Exception as error:  # the user's code may raise anything; it is named, not ours
            cure = f"mend it; it was called with ({shape.channels}, {shape.num_classes})"
            raise _model_error(spec, "failed", error, cure) from error
        return model

    return builder


def _imported(spec: str) -> Any:
    module, _, name = spec.partition(":")
    sys.path.insert(0, os.getcwd())  # the console script's path lacks the working folder
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:  # importing runs the user's code
        cure = "run autodo from the folder that holds the module, and check the spelling"
        raise _model_error(spec, "cannot be imported", error, cure) from error
    if not callable(function):
        raise InputError(
            f"--model {spec} is a {type(function).__name__}",
            "it must be called with (channels, num_classes) to build the network",
            "name a function or a class",
        )
    return function


def _model_error(spec: str, what: str, error: Exception, cure: str) -> InputError:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    own = Path(frame.filename).is_relative_to(Path.cwd())
    place = f" ({frame.filename}, line {frame.lineno})" if own else ""
    return InputError(f"--model {spec} {what}", f"{type(error).__name__}: {error}{place}", cure)


def _accepts(function: Any, name: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some built-in functions have no signature
        return False
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)
