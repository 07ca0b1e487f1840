"""Fixtures of every ring of tests. Keep this file small: a fixture belongs beside the tests that
need it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from property_size import TIMES, examples

# A shared machine pauses a test now and then. bench/ measures what must be quick.
settings.register_profile("house", deadline=None)
# `make property` prints a failure in a form that runs again anywhere, and keeps it in no
# database.
settings.register_profile("thorough", deadline=None, max_examples=examples(100), print_blob=True, database=None)
settings.load_profile("house" if TIMES == 1 else "thorough")

# modules beside this file
pytest_plugins = [
    "zookeeper_fixtures",
    "cluster_fixtures",
    "job_host",
    "event_fixtures",
    "masters_in_process",
    "cluster_by_script",
    "quick_callbacks",
    "contenders",
]


@pytest.fixture
def anyio_backend() -> str:
    """Tests marked `anyio` run on asyncio, like the product."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps tests away from what this machine's user has remembered by commands."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
