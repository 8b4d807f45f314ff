"""Where tests find the files that live beside the repository and are never committed to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


def shared_path(*parts: str) -> Path:
    """A path under the shared folder: $AUTODO_SHARED, else ``shared`` beside the repository.

    Skips the calling test (or, at import, its whole module) where the path does not exist.
    """
    root = Path(os.environ.get("AUTODO_SHARED") or REPOSITORY.parent / "shared")
    path = root.joinpath(*parts)
    if not path.exists():
        pytest.skip(
            f"{path} does not exist: set AUTODO_SHARED to the folder that holds it to run this",
            allow_module_level=True,
        )
    return path
