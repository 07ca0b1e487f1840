"""Elected is not ready: which master may lead when disks are lost.

Also: what happens to a bundle that nobody has, and how a new leader goes on with waiting jobs.
"""

from __future__ import annotations

import shutil
import signal
import threading
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


def submitted(cluster: Cluster, path: Path, name: str, seed: int) -> tuple[str, str]:
    """Submits a job that runs nowhere. Returns the id and digest of its bundle, which every master
    holds."""
    write_tree(path, {"data.bin": some_bytes(SIZE, seed), "job.toml": JOB.format(name=name).encode()})
    bundle = cluster.run("job", "submit", path).ok()["bundle"]
    until(lambda: len(cluster.holders(bundle, at=cluster.leader())) == 3, f"three copies of {bundle}")
    return bundle, make_metafile(path).digest


def take_away(cluster: Cluster, master: str, digest: str) -> None:
    """Removes one bundle from the disk of a master that is down."""
    (cluster.store(master) / "bundles" / digest).unlink()
    shutil.rmtree(cluster.store(master) / "objects" / digest)


class Leaders:
    """Asks the masters all the time who leads, and what the leader has published at that moment."""

    def __init__(self, cluster: Cluster, masters: list[str], digests: list[str]) -> None:
        self.without: list[str] = []
        self._over = threading.Event()
        self._asking = [threading.Thread(target=self._ask, args=(cluster, name, digests)) for name in masters]

    def _ask(self, cluster: Cluster, name: str, digests: list[str]) -> None:
        while not self._over.is_set():
            before = [d for d in digests if not cluster.published(name, d)]
            if cluster.status(name, "/leaderz") == 200 and before:
                self.without.append(f"{name} led without {before}")

    def __enter__(self) -> Leaders:
        for thread in self._asking:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._asking:
            thread.join()


@pytest.mark.case("A9")
@pytest.mark.case("A10")
@pytest.mark.case("A11")
def test_masters_that_lack_something_fetch_it_before_they_lead(gated: Cluster, tmp_path: Path) -> None:
    """Without this, nobody leads after the leader's disk died, or a master leads that lacks a live
    job's bundle. It takes long: masters start several times."""
    (_, first), (_, second) = (submitted(gated, tmp_path / name, name, 700 + n) for n, name in enumerate("ab"))
    leader, (one, other) = gated.leader(), gated.standbys()
    gated.kill(leader, one, other)
    shutil.rmtree(gated.store(leader))
    take_away(gated, one, first)
    take_away(gated, other, second)
    with Leaders(gated, [one, other], [first, second]) as leaders:
        gated.start(one, other)
        heir = gated.leader()
        until(lambda: all(gated.published(n, d) for n in (one, other) for d in (first, second)), "both have both")
    began = time.monotonic()
    gated.reconfigure_stopped(leader, {"replication": {"catch_up_limit": LIMIT}})
    before = gated.get(leader, "/v1/role")["state"]
    until(lambda: gated.get(leader, "/v1/role")["state"] == "standby", "it queues again")
    seconds = time.monotonic() - began
    has_all = all(gated.published(leader, digest) for digest in (first, second))
    print(f"caught up in {seconds:.1f} s")

    assert heir in (one, other)
    assert [] == leaders.without
    assert ("out", True) == (before, has_all)
    assert seconds > 0.6 * 2 * SIZE / LIMIT


@pytest.mark.case("A8")
@pytest.mark.case("A18")
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


@pytest.mark.case("A17")
def test_what_nobody_has_is_called_lost_and_bars_nobody(gated: Cluster, tmp_path: Path) -> None:
    """Without this, one bundle that is gone everywhere leaves the cluster without a leader for
    ever.
    """
    source = tmp_path / "c"
    bundle, digest = submitted(gated, source, "c", 720)
    epoch = gated.run("ha", "leader").ok()["epoch"]
    gated.kill(*gated.masters())
    for master in gated.masters():
        take_away(gated, master, digest)
    began = time.monotonic()
    gated.start(*gated.masters())
    leader = gated.leader()
    seconds = time.monotonic() - began
    after = gated.run("ha", "leader").ok()["epoch"]
    shown = gated.run("bundle", "show", bundle).ok()
    counts = gated.run("cluster").ok()["bundles"]
    metrics = gated.http.get(gated.url(leader) + "/metrics").text
    logs = "".join((gated.dir / f"{master}.log").read_text() for master in gated.masters())
    job = gated.run("job", "show", "c").ok()
    gated.upload(source, bundle)
    healed = gated.run("bundle", "show", bundle).ok()
    gated.run("download", bundle, tmp_path / "dest").ok()
    print(f"a leader after {seconds:.1f} s")

    assert seconds >= LOST_SECS
    assert epoch + 1 == after
    assert ("lost", 0) == (shown["state"], shown["replicas"])
    assert 1 == counts["lost"]
    assert 'state="lost"} 1' in metrics
    assert "every copy of a bundle is lost" in logs
    assert "active" == job["status"]
    assert ("available", 3) == (healed["state"], healed["replicas"])
