"""The engines, started once for all tests of the ring and ended with it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from engines.engine_hosts import EngineLab
from engines.hadoop import Hadoop
from engines.ring import INSIDE_LAB
from engines.spark_programs import SparkPrograms
from engines.torrentdist_site import TorrentdistSite

WORKERS = ("w1", "w2", "w3")


BEGAN = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engines-secs", type=float, default=3600.0, help="no test of an engine begins after so long")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leaves out every test outside of the lab, and those that would begin too late."""
    if INSIDE_LAB not in os.environ:
        pytest.skip("the engines run inside a lab: make engines")
    if time.monotonic() - BEGAN > item.config.getoption("--engines-secs"):
        pytest.skip("left out: the time of the engines is up")


@pytest.fixture(scope="session")
def engine_lab() -> Iterator[EngineLab]:
    directory = Path(tempfile.mkdtemp(prefix="torrentdist-engines-"))
    lab = EngineLab(directory)
    lab.add(["head", *WORKERS, "client"])
    try:
        yield lab
    finally:
        lab.end_all()
        if kept := os.environ.get("ENGINES_LOGS"):
            shutil.copytree(directory, kept, ignore=shutil.ignore_patterns("disks", "shared"), dirs_exist_ok=True)
        shutil.rmtree(directory, ignore_errors=True)


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
    try:
        site.up()
        yield site
    finally:
        site.down()


@pytest.fixture(scope="session")
def spark(engine_lab: EngineLab) -> SparkPrograms:
    return SparkPrograms(engine_lab, engine_lab.named("client"))
