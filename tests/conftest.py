"""For all tests: nothing is kept in the user's own cache, and costly runs are made once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SHARING = ("report", "review", "export", "experiment", "test_resume", "test_label_storage")
"""Folders and files of tests that share a run which takes seconds to make."""


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What shares a run goes to one process, anything else test by test to the next free one."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = Path(nodeid.partition("::")[0])
            shared = [name for name in SHARING if name in (file.stem, file.parent.name)]
            return shared[0] if shared else nodeid

    return Scheduling(config, log)


@pytest.fixture(autouse=True, scope="session")
def _heeds_ctrl_c() -> None:
    """A shell starts what it runs in the background deaf to Ctrl-C, and so would be whatever tests
    start and interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTODO_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
