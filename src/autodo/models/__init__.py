"""Networks, and the way to their last linear layer."""

from autodo.models.head import find_head
from autodo.models.small_cnn import Normalize, SmallCNN

__all__ = ["Normalize", "SmallCNN", "find_head"]
