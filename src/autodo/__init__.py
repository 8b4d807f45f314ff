"""AutoDO: learn to augment, weigh and relabel every training example from a small trusted set."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from autodo.auditing.audit import audit
    from autodo.config import Config
    from autodo.experiment.compare import compare
    from autodo.fitting import fit
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
    "audit",
    "compare",
    "fit",
]

_HOMES = {
    "Config": "autodo.config",
    "ConjugateGradient": "autodo.implicit.solvers",
    "DatasetModel": "autodo.hyper.dataset_model",
    "HyperOptimizer": "autodo.train.hyper_optimizer",
    "Identity": "autodo.implicit.solvers",
    "Neumann": "autodo.implicit.solvers",
    "Result": "autodo.result",
    "audit": "autodo.auditing.audit",
    "compare": "autodo.experiment.compare",
    "fit": "autodo.fitting",
}
_PACKAGES = ("data", "hyper", "implicit", "models", "policies")


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that ``autodo --help`` waits for no torch."""
    if name in _PACKAGES:
        return importlib.import_module(f"autodo.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'autodo' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
