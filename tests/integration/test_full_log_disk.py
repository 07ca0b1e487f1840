"""Daemons whose log is on a full disk."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, NewCluster, until

pytestmark = pytest.mark.case("G6")
MOUNT_BYTES = 4 * 1024 * 1024
"""So much that the debug log of one daemon does not fill it again before the other has written."""


def dropped(cluster: Cluster, name: str) -> float:
    text = cluster.http.get(cluster.url(name) + "/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("torrentdist_log_lines_dropped_total")]
    return float(lines[0].split()[-1])


def move_log(cluster: Cluster, name: str, disk: Path) -> None:
    cluster.dev.signal(name, signal.SIGTERM)
    log = cluster.dir / f"{name}.log"
    log.unlink()
    log.symlink_to(disk / log.name)
    cluster.start(name)


def fill(path: Path) -> None:
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\n" * 512)


def test_a_full_disk_under_the_log_ends_no_daemon(new_cluster: NewCluster, small_disk: Callable[[int], Path]) -> None:
    """If this fails, a master and a supervisor end at the first line that they cannot write, and
    workers end with them. It takes long: daemons write a disk full."""
    settings = {"log": {"level": "debug", "format": "json"}}
    cluster = new_cluster(settings, masters=1, supervisors=1, own_zookeeper=True)
    disk = small_disk(MOUNT_BYTES)
    names = ["master-1", "supervisor-1"]
    for name in names:
        move_log(cluster, name, disk)
    fill(disk / "ballast")
    for name in names:
        fill(disk / f"{name}.log")  # its last page still has room
    [zookeeper] = [p.id for p in cluster.dev.state.processes if p.role == "zookeeper"]

    def trouble() -> bool:
        """Causes a log line at every daemon: ZooKeeper is lost and found again."""
        cluster.kill(zookeeper)
        cluster.dev.start(zookeeper)
        return all(dropped(cluster, name) > 0 for name in names)

    until(trouble, "lines are dropped", 60)
    until(lambda: cluster.status("master-1", "/leaderz") == 200, "it leads again", 30)
    alive = [cluster.alive(name) for name in names]
    (disk / "ballast").unlink()

    def told(name: str) -> list[int]:
        lines = (disk / f"{name}.log").read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [line["lines"] for line in found if line["event"] == "lines of the log were dropped"]

    def tells() -> bool:
        trouble()
        return all(told(name) for name in names)

    until(tells, "the log says how much is missing", 60)

    assert alive == [True, True]
    assert all(told(name)[0] > 0 for name in names)
