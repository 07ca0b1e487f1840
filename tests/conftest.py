"""Fixtures of every ring of tests. Keep this file small: a fixture belongs beside the tests that
need it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from property_size import TIMES, examples
from xdist.scheduler.loadfile import LoadFileScheduling  # type: ignore[import-untyped]

# A shared machine pauses a test now and then. bench/ measures what must be quick.
settings.register_profile("house", deadline=None, max_examples=examples(100))
# `make property` prints a failure in a form that runs again anywhere, and keeps it in no
# database.
settings.register_profile("thorough", deadline=None, max_examples=examples(100), print_blob=True, database=None)
# `make breaks` tries the same examples each time, and has no use for the smallest one that fails.
NO_SHRINKING = (Phase.explicit, Phase.generate)
settings.register_profile(
    "breaks", deadline=None, max_examples=examples(100), derandomize=True, database=None, phases=NO_SHRINKING
)
BREAKS = "HOUSE_BREAKS" in os.environ
settings.load_profile("breaks" if BREAKS else "house" if TIMES == 1 else "thorough")

REPORTS = {f"tests/spark/test_{name}.py" for name in ("report", "store", "tables", "demo")}


class TwoSparks(LoadFileScheduling):  # type: ignore[misc]
    """Gives the tests of reports to one worker and the other tests with Spark to a second one, so
    that a Spark starts once for many files. Anywhere else a file is a unit."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file.startswith("tests/spark/"):
            return "reports" if file in REPORTS else "jobs"
        return file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return TwoSparks(config, log) if config.getoption("dist") == "loadfile" else None


# modules beside this file
pytest_plugins = [
    "processor_time",
    "quick_callbacks",
    "zookeeper_fixtures",
    "cluster_fixtures",
    "small_disks",
    "job_host",
    "event_fixtures",
    "masters_in_process",
    "cluster_by_script",
    "contenders",
    "identity_site",
]


@pytest.fixture
def anyio_backend() -> str:
    """Tests marked `anyio` run on asyncio, like the product."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps tests away from what this machine's user has remembered by commands."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
