"""The engines, started once for all tests of the ring and ended with it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from engines.engine_hosts import EngineLab
from engines.hadoop import Hadoop
from engines.ring import INSIDE_LAB
from engines.spark_programs import SparkPrograms
from engines.standalone import SparkCluster
from engines.torrentdist_site import TorrentdistSite

WORKERS = ("w1", "w2", "w3")
FIRST = (
    *("test_yarn", "test_yarn_environment", "test_yarn_failures", "test_streaming", "test_versions"),
    *("test_yarn_jobs", "test_standalone", "test_standalone_jobs", "test_jars", "test_yarn_own_jars"),
    *("test_standalone_crowd", "test_failures", "test_hdfs", "test_hdfs_masters", "test_httpfs", "test_reports"),
)
"""The order of the files. Where time is short, the later ones are left out."""
BEGAN = time.monotonic()
LEFT_OUT = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engines-secs", type=float, default=3600.0, help="no test of an engine begins after so long")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: FIRST.index(item.path.stem) if item.path.stem in FIRST else len(FIRST))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leaves out every test outside of the lab, and those that would begin too late."""
    if INSIDE_LAB not in os.environ:
        pytest.skip("the engines run inside a lab: make engines")
    if time.monotonic() - BEGAN > item.config.getoption("--engines-secs"):
        item.config.stash[LEFT_OUT].append(item.name)
        pytest.skip("left out: the time of the engines is up")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if names := config.stash[LEFT_OUT]:
        terminalreporter.write_line(f"engines: left out for want of time: {', '.join(names)}")


@pytest.fixture(scope="session")
def engine_lab() -> Iterator[EngineLab]:
    directory = Path(os.environ[INSIDE_LAB])
    lab = EngineLab(directory)
    lab.add(["head", *WORKERS, "client"])
    try:
        yield lab
    finally:
        lab.end_all()
        if kept := os.environ.get("ENGINES_LOGS"):
            shutil.copytree(
                directory, kept, ignore=shutil.ignore_patterns("disks", "shared", "tmp"), dirs_exist_ok=True
            )


@pytest.fixture(scope="session")
def hadoop(engine_lab: EngineLab) -> Hadoop:
    """HDFS with three DataNodes, and YARN with three NodeManagers."""
    head, *workers = (engine_lab.named(name) for name in ("head", *WORKERS))
    hadoop = Hadoop(engine_lab, head, workers)
    hadoop.start()
    return hadoop


@pytest.fixture(scope="session")
def site(engine_lab: EngineLab) -> Iterator[TorrentdistSite]:
    """A master on `head`, and a supervisor on each host where Spark's programs run."""
    hosts = [engine_lab.named(name) for name in (*WORKERS, "client")]
    site = TorrentdistSite(engine_lab, "site", [engine_lab.named("head")], hosts)
    site.settings = '[jobs]\nisolation = "none"\n'
    try:
        site.up()
        yield site
    finally:
        site.down()


@pytest.fixture(scope="session")
def standalone(engine_lab: EngineLab, site: TorrentdistSite) -> Iterator[SparkCluster]:
    """Spark's own cluster: a master on `head`, and three workers."""
    cluster = SparkCluster(engine_lab, engine_lab.named("head"), [engine_lab.named(name) for name in WORKERS])
    cluster.start()
    yield cluster
    cluster.end()


@pytest.fixture(scope="session")
def spark(engine_lab: EngineLab) -> SparkPrograms:
    return SparkPrograms(engine_lab, engine_lab.named("client"))
