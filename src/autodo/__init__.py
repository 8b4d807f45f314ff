"""AutoDO: learn to augment, weigh and relabel every training example from a small trusted set."""

__version__ = "0.1.0"

from autodo.config import Config
from autodo.fit import fit
from autodo.hyper.dataset_model import DatasetModel
from autodo.implicit.solvers import ConjugateGradient, Identity, Neumann
from autodo.result import Result
from autodo.train.hyper_optimizer import HyperOptimizer

__all__ = [
    "Config",
    "ConjugateGradient",
    "DatasetModel",
    "HyperOptimizer",
    "Identity",
    "Neumann",
    "Result",
    "fit",
]
