"""The run that most tests of the report look at."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_runs import make_compared_run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a baseline; tests must not change it."""
    return make_compared_run(tmp_path_factory.mktemp("report") / "run")
