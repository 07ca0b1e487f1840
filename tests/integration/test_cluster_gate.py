"""Elected is not ready: a master with a new disk catches up first, and a new leader goes on with
waiting jobs."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, running_cluster, until

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.testing.sample_trees import some_bytes, write_tree

LOST_SECS = 4.0
"""The time in seconds that masters which start together need at most to see each other."""
SIZE = 1024 * 1024
LIMIT = SIZE
JOB = 'name = "{name}"\ncommand = ["sleep", "1000"]\n'


@pytest.fixture(scope="module")
def _gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"replication": {"lost_secs": LOST_SECS, "max_wait_secs": -1}}
    with running_cluster(settings, work=tmp_path_factory.mktemp("gated-cluster"), supervisors=0) as cluster:
        yield cluster


@pytest.fixture
def gated(_gated: Cluster) -> Cluster:
    """3 masters without supervisors. A bundle that no master has had for LOST_SECS is lost."""
    _gated.heal()
    return _gated


def submitted(cluster: Cluster, path: Path, name: str, seed: int) -> str:
    """Submits a job that runs nowhere. Returns the digest of its bundle, which every master
    holds."""
    write_tree(path, {"data.bin": some_bytes(SIZE, seed), "job.toml": JOB.format(name=name).encode()})
    bundle = cluster.run("job", "submit", path).ok()["bundle"]
    until(lambda: len(cluster.holders(bundle, at=cluster.leader())) == 3, f"three copies of {bundle}")
    return make_metafile(path).digest


@pytest.mark.case("A10")
def test_a_master_with_a_new_disk_catches_up_before_it_queues(gated: Cluster, tmp_path: Path) -> None:
    """Without this, a master whose disk was replaced may lead without a live job's bundle, or never
    again. It takes long: a session ends, and the bundles come slowly."""
    digests = [submitted(gated, tmp_path / name, name, 700 + n) for n, name in enumerate("ab")]
    leader, name = gated.leader(), gated.standbys()[0]
    gated.kill(name)
    shutil.rmtree(gated.store(name))
    until(lambda: not gated.registered(name, at=leader), "its session is over")
    began = time.monotonic()
    gated.reconfigure_stopped(name, {"replication": {"catch_up_limit": LIMIT}})
    before = gated.get(name, "/v1/role")["state"]
    until(lambda: gated.get(name, "/v1/role")["state"] == "standby", "it queues again")
    seconds = time.monotonic() - began
    has_all = all(gated.published(name, digest) for digest in digests)
    print(f"caught up in {seconds:.1f} s")

    assert ("out", True) == (before, has_all)
    assert seconds > 0.6 * 2 * SIZE / LIMIT


@pytest.mark.case("A8")
@pytest.mark.case("A18")
@pytest.mark.case("E2")
def test_a_submit_that_waits_holds_up_nobody_and_is_not_waited_for_by_a_deposed_leader(
    gated: Cluster, tmp_path: Path
) -> None:
    """Without this, one submit that waits for replicas stops every other, or two leaders go on with
    it.
    """
    leader, (away, heir) = gated.leader(), gated.standbys()
    gated.kill(away)
    write_tree(tmp_path / "slow", {"data.bin": some_bytes(SIZE, 740), "job.toml": JOB.format(name="slow").encode()})
    short = gated.run("upload", tmp_path / "slow", "--id", "slow", "--min-replicas", 3, "--timeout", "1s")
    gated.run("job", "submit", "slow").ok()
    write_tree(tmp_path / "quick", {"data.bin": some_bytes(9000, 741), "job.toml": JOB.format(name="quick").encode()})
    gated.run("job", "submit", tmp_path / "quick").ok()
    until(lambda: status_of(gated, "quick") == "active", "the quick one is replicated")
    gated.run("job", "kill", "quick", "-w", "0s").ok()
    meanwhile = status_of(gated, "slow")
    gated.dev.signal(leader, signal.SIGSTOP)
    until(lambda: gated.status(heir, "/leaderz") == 200, "another one leads")
    done = committed(gated, leader)
    gated.dev.signal(leader, signal.SIGCONT)
    waiting = status_of(gated, "slow")
    gated.start(away)
    until(lambda: status_of(gated, "slow") == "active", "the next leader goes on with it")

    assert 10 == short.code
    assert ("replicating", "replicating") == (meanwhile, waiting)
    assert done == committed(gated, leader)
    assert heir == gated.leader()


def status_of(cluster: Cluster, job: str) -> str:
    return str(cluster.run("job", "show", job).ok()["status"])


def committed(cluster: Cluster, master: str) -> int:
    """Returns how many changes this master has made as the leader, by its own log."""
    return (cluster.dir / f"{master}.log").read_text().count('"committed"')
