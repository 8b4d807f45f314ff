"""Data: where examples come from, what is checked, and how batches reach the device.

Knows nothing of learning. Sources return :class:`Examples`; :func:`open_dataset`
takes those or any map-style dataset; :class:`Loader` draws the batches.
"""

from autodo.data.checks import check_pair, open_dataset
from autodo.data.digits import load_digits
from autodo.data.distort import step_imbalance, uniform_noise
from autodo.data.examples import Examples
from autodo.data.folder import load_folder
from autodo.data.loader import Loader
from autodo.data.split import stratified_split

__all__ = [
    "Examples",
    "Loader",
    "check_pair",
    "load_digits",
    "load_folder",
    "open_dataset",
    "step_imbalance",
    "stratified_split",
    "uniform_noise",
]
