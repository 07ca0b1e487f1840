"""How long commands take while ZooKeeper or masters are away or frozen, on a real cluster."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from cluster_fixtures import Cluster, NewCluster, Ran, make_source, until
from patience import patient

READ_SECS = 15.0
"""Two seconds, plus the start of a process on an overloaded machine. tests/unit checks the exact
time."""

READS = (
    ("cluster",),
    ("bundle", "ls"),
    ("bundle", "show", "b"),
    ("job", "ls"),
    ("job", "show", "counter"),
    ("supervisor", "ls"),
    ("ha", "leader"),
    ("ha", "roles"),
    ("ha", "failovers"),
    ("group", "ls"),
)


def program(top: Path) -> Path:
    top.mkdir()
    (top / "run.sh").write_text("#!/bin/sh\nexec sleep 600\n")
    (top / "run.sh").chmod(0o755)
    (top / "job.toml").write_text('name = "counter"\ncommand = ["./run.sh"]\nworkers = 2\n')
    return top


def workers(cluster: Cluster) -> list[Any]:
    ran = cluster.run("job", "show", "counter")
    return [worker["state"] for worker in ran.json["workers"]] if ran.code == 0 else []


def all_reads(cluster: Cluster) -> dict[tuple[str, ...], Ran]:
    """Runs all of them at the same time: each mostly waits."""
    begun = {args: cluster.begin(*args) for args in READS}
    return {args: command.end() for args, command in begun.items()}


@pytest.mark.case("G7")
def test_reads_end_in_time_without_zookeeper_and_say_what_they_do_not_know(
    new_cluster: NewCluster, tmp_path: Path
) -> None:
    """If this fails, `job ls` takes a minute without ZooKeeper, and then shows workers that run as
    0/2. It takes long: each of many commands is a process."""
    cluster = new_cluster(own_zookeeper=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "file").write_text("content")
    cluster.upload(tmp_path / "b", "b")
    cluster.run("job", "submit", program(tmp_path / "job")).ok()
    until(lambda: workers(cluster) == ["running", "running"], "its workers run", 30)
    leader = cluster.leader()
    [zookeeper] = [p.id for p in cluster.dev.state.processes if p.role == "zookeeper"]

    cluster.dev.signal(zookeeper, signal.SIGSTOP)
    frozen = all_reads(cluster)
    cluster.dev.signal(zookeeper, signal.SIGCONT)
    cluster.kill(zookeeper)
    until(lambda: cluster.status(leader, "/leaderz") != 200, "nobody leads", 30)
    gone = all_reads(cluster)
    shown = gone["job", "show", "counter"].ok()["workers"]

    for ran in (frozen, gone):
        assert {} == {args: r.seconds for args, r in ran.items() if r.seconds > READ_SECS}
        assert all(r.code in (0, 5) for r in ran.values())
        for args in READS[:6]:
            assert 0 == ran[args].code, (args, ran[args].stderr)
    assert all("s old" in gone[args].stderr for args in READS[:6])
    assert all(worker["state"] in (None, "running") for worker in shown)


@pytest.mark.case("G8")
@pytest.mark.parametrize("role", ["leader", "standby"])
def test_an_upload_leaves_a_frozen_master(battered: Cluster, tmp_path: Path, role: str) -> None:
    """If this fails, a frozen leader holds an upload for 36 s, and a frozen standby for 20 s."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "file").write_text(role)
    victim = battered.leader() if role == "leader" else battered.standbys()[0]
    battered.dev.signal(victim, signal.SIGSTOP)
    began = time.monotonic()
    ran = battered.run("upload", tmp_path / "b", "--id", f"frozen-{role}", "--min-replicas", 2)
    took = time.monotonic() - began
    battered.dev.signal(victim, signal.SIGCONT)

    assert 0 == ran.code, ran.stderr
    assert 2 == ran.json["replicas"]
    assert took < (20.0 if role == "leader" else 10.0)


def test_no_leader_is_said_in_time(battered: Cluster, tmp_path: Path) -> None:
    """If this failed, a command would wait for ever for masters that are all down."""
    source = make_source(tmp_path / "source", 550)
    battered.kill(*battered.masters())

    began = time.monotonic()
    ran = battered.run("upload", source, "--id", "to-nobody", client__deadline_secs=3)
    listed = battered.run("bundle", "ls", client__deadline_secs=3)

    assert (5, 5) == (ran.code, listed.code)
    assert time.monotonic() - began < patient(12)
    assert "127.0.0.1" in ran.stderr
