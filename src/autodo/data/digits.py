"""The 8x8 handwritten digits that come with scikit-learn: real data without a download."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits as _load_digits

from autodo.data.examples import Examples


def load_digits() -> Examples:
    """The 1,797 digits, images (1797, 1, 8, 8) as float32 in [0, 1].

    >>> digits = load_digits()
    >>> digits.images.shape, float(digits.images.max()), digits.num_classes
    (torch.Size([1797, 1, 8, 8]), 1.0, 10)
    """
    bunch = _load_digits()
    images = bunch.images.astype(np.float32) / 16
    return Examples.from_arrays(images, bunch.target, name="digits")
