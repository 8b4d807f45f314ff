"""Runs to review: one made in memory, one of a folder of images."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

# The browser, and runs made without a source, are those of the report's tests.
sys.path.append(str(Path(__file__).parents[1] / "report"))

from made_runs import make_run
from review_runs import make_folder_run


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("review")
    make_run(folder / "memory")
    make_folder_run(folder / "folder")
    return folder


@pytest.fixture
def memory_run(_made: Path, tmp_path: Path) -> Path:
    """A run without a source, whose first class has a hostile name, to be decided upon."""
    return Path(shutil.copytree(_made / "memory", tmp_path / "memory"))


@pytest.fixture
def folder_run(_made: Path, tmp_path: Path) -> Path:
    """A run of the folder photos/train beside it."""
    shutil.copytree(_made / "folder", tmp_path / "folder")
    return tmp_path / "folder" / "run"
