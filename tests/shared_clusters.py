"""Clusters that the tests of many files share.

Always: `cluster` must not be harmed. `battered` may be killed and frozen, and is repaired before
the next test. A cluster that no test has used for a while is stopped, since its daemons take a
twentieth of a processor while they do nothing; the next test that wants one starts another.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_fixtures import Cluster, Settings, running_cluster
from processor_time import counted_as_shared

from torrentdist.dev.dev_processes import is_alive

UNUSED_SECS = 40.0
"""In this time an idle cluster costs as much as the start of another one."""
RECORDED = "HOUSE_COVERAGE" in os.environ
SHARED: Settings = {"swarm": {"seeding_secs": 2.0}}
"""A supervisor may hear of a removal so late; the default is 15 s."""
BATTERED: Settings = {"replication": {"abandon_secs": 4.0}, "swarm": {"seeding_secs": 2.0}}


class SharedCluster:
    """One cluster, or none. It is started when a test wants it."""

    def __init__(self, name: str, settings: Settings, **spec: Any) -> None:
        self._name, self._settings, self._spec = name, settings, spec
        self._cluster: Cluster | None = None
        self._end = contextlib.ExitStack()
        self._used_at = 0.0
        self._in_use = False

    def use(self, directories: pytest.TempPathFactory) -> Cluster:
        if self._cluster is None:
            with counted_as_shared():
                work = directories.mktemp(self._name)
                self._cluster = self._end.enter_context(running_cluster(self._settings, work=work, **self._spec))
        self._in_use = True
        return self._cluster

    def test_ended(self, most_secs: float) -> None:
        """Stops the cluster if no test has used it for so long."""
        if self._in_use:
            self._used_at, self._in_use = time.monotonic(), False
        if self._cluster is not None and time.monotonic() - self._used_at >= most_secs:
            self._cluster = None
            self._end.close()


_shared = SharedCluster("shared-cluster", SHARED)
_battered = SharedCluster("battered-cluster", BATTERED, own_zookeeper=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Stops what nobody uses any more, after all fixtures of the test. For `make coverage-map`,
    each file has a cluster of its own, because what its daemons run counts for one file."""
    try:
        return (yield)
    finally:
        is_over = nextitem is None or (RECORDED and nextitem.path != item.path)
        for shared in (_shared, _battered):
            shared.test_ended(0.0 if is_over else UNUSED_SECS)


def pytest_sessionfinish() -> None:
    for shared in (_shared, _battered):
        shared.test_ended(0.0)


def shared_cluster(directories: pytest.TempPathFactory) -> Cluster:
    """Returns the shared cluster, for a fixture of a module whose tests use it, too."""
    return _shared.use(directories)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """3 masters and 2 supervisors, shared by all tests of a worker. Do not stop, kill or fill
    anything."""
    running = shared_cluster(tmp_path_factory)
    dead = [p.id for p in running.dev.state.processes if not is_alive(p)]
    assert not dead, f"a test before this one lost {dead}"
    return running


@pytest.fixture
def battered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """3 masters, 2 supervisors and a ZooKeeper that a test may kill and freeze. They are repaired
    before each test. Uploads expire in 4 s."""
    running = _battered.use(tmp_path_factory)
    running.heal()
    yield running
    for process in running.dev.state.processes:
        with contextlib.suppress(ProcessLookupError):
            if is_alive(process):
                os.kill(process.pid, signal.SIGCONT)
