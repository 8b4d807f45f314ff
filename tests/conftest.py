"""For all tests: nothing is kept in the user's own cache, and costly runs are made once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

SHARING = ("report", "review", "export", "experiment", "test_resume", "test_label_storage")
"""Folders and files of tests that share a run which takes seconds to make."""


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With ``--dist loadgroup`` those that share one run go to one process."""
    for item in items:
        name = next((n for n in SHARING if n in (item.path.stem, item.path.parent.name)), None)
        if name is not None:
            item.add_marker(pytest.mark.xdist_group(name))


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTODO_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
