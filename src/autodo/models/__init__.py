"""Networks by name, and the way to their last linear layer."""

from autodo.models.head import find_head
from autodo.models.normalize import Normalize, pixel_statistics
from autodo.models.registry import build
from autodo.models.resnet import ResNet18
from autodo.models.small_cnn import SmallCNN
from autodo.models.wide_resnet import WideResNet

__all__ = [
    "Normalize",
    "ResNet18",
    "SmallCNN",
    "WideResNet",
    "build",
    "find_head",
    "pixel_statistics",
]
