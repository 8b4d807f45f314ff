"""Embeddings with labels as a file holds them, and what their columns or arrays are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

EMBEDDING_NAMES = (
    *("embedding", "embeddings", "features", "feature", "vector", "vectors"),
    *("representation", "x", "data"),
)
ID_NAMES = ("id", "path", "file", "file_name", "filename", "name")
TRUSTED = "trusted"


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """What a file holds."""

    embeddings: np.ndarray
    """(N, D)"""
    labels: np.ndarray
    """(N,)"""
    ids: Sequence[str] | None = None
    class_names: tuple[str, ...] | None = None
    trusted: int | None = None
    """How many points, the last ones, the file says are trusted, where it says so."""

    def rows(self, rows: slice) -> Columns:
        """Some of the rows, without a copy of their embeddings."""
        return Columns(
            embeddings=self.embeddings[rows],
            labels=self.labels[rows],
            ids=None if self.ids is None else self.ids[rows],
            class_names=self.class_names,
        )


@dataclass(frozen=True, kw_only=True)
class Names:
    """What the columns or arrays are called; None finds the customary names."""

    embedding: str | None = None
    label: str | None = None
    id: str | None = None
    trusted: str | None = None
