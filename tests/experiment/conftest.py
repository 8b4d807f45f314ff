"""Data of the paper's experiments for all tests here, and a cache that is not the user's."""

from __future__ import annotations

from pathlib import Path

import pytest
from paper_data import write_digits


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits under the names svhn and cifar10."""
    return write_digits(tmp_path_factory.mktemp("data"), "svhn", "cifar10")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTODO_CACHE", str(tmp_path / "cache"))
