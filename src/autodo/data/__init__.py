"""Data: where examples come from, what is checked, and how batches reach the device.

Knows nothing of learning. Sources return :class:`Examples`, among them
``autodo.data.sources.load``, which reads every layout on a disk; :func:`open_dataset`
takes those or any map-style dataset; :class:`Loader` draws the batches.
"""

from autodo.data.checks import check_pair, open_dataset
from autodo.data.digits import load_digits
from autodo.data.distort import (
    CIFAR10_FLIPS,
    Distortion,
    asymmetric_noise,
    long_tail,
    step_imbalance,
    symmetric_noise,
    uniform_noise,
)
from autodo.data.examples import Examples
from autodo.data.folder import load_folder
from autodo.data.label_file import read_labels
from autodo.data.loader import Loader
from autodo.data.split import TRUSTED_SIZES, stratified_split

__all__ = [
    "CIFAR10_FLIPS",
    "TRUSTED_SIZES",
    "Distortion",
    "Examples",
    "Loader",
    "asymmetric_noise",
    "check_pair",
    "load_digits",
    "load_folder",
    "long_tail",
    "open_dataset",
    "read_labels",
    "step_imbalance",
    "stratified_split",
    "symmetric_noise",
    "uniform_noise",
]
