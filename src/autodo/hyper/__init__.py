"""Lambda: tables of rows with their optimizers, the three sub-models, and their composition."""

from autodo.hyper.augment import Augment
from autodo.hyper.dataset_model import DatasetModel
from autodo.hyper.table import Table

__all__ = ["Augment", "DatasetModel", "Table"]
