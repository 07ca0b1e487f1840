"""Fixtures of every ring of tests. Keep this file small: a fixture belongs beside the tests that
need it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

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

ROOT = Path(__file__).parent.parent
REPORTS = {f"tests/spark/test_{name}.py" for name in ("report", "report_command", "store", "tables", "demo")}


class FewServers(LoadFileScheduling):  # type: ignore[misc]
    """Gives files that share what is dear to one worker: Spark for reports, Spark for the other
    tests, and the clusters that tests share (shared_clusters.py). Elsewhere a file is a unit."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file.startswith("tests/spark/"):
            return "reports" if file in REPORTS else "jobs"
        return shared_by(file) or file


@cache
def shared_by(file: str) -> str:
    """Returns the name of the cluster that the tests of a file share with others; empty: none. Of
    the one that they leave whole there are two."""
    text = (ROOT / file).read_text(encoding="utf-8")
    if "battered: Cluster" in text:
        return "battered"
    is_shared = "cluster: Cluster" in text and "\ndef cluster(" not in text
    return f"shared-{crc32(file.encode()) % 2}" if is_shared else ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return FewServers(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Python's collector finds nothing in what pytest collects, and would go through it again and
    again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


# modules beside this file
pytest_plugins = [
    "processor_time",
    "shared_tls_context",
    "quick_callbacks",
    "zookeeper_fixtures",
    "cluster_fixtures",
    "shared_clusters",
    "uploaded_bundles",
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


_numbers = count()


@pytest.fixture(scope="session")
def _caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(autouse=True)
def _own_cache(_caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps tests away from what this machine's user has remembered by commands."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(_caches / str(next(_numbers))))
