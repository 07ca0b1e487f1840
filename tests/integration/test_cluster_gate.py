"""Elected is not ready: who may lead when disks are gone, and what becomes of a bundle that nobody has any more."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, running_cluster, until

from torrentdist.bundle.make import make_metafile
from torrentdist.testing.trees import some_bytes, write_tree

LOST_SECS = 3.0
SIZE = 1024 * 1024
LIMIT = SIZE
JOB = 'name = "{name}"\ncommand = ["sleep", "1000"]\n'


@pytest.fixture(scope="module")
def _gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"replication": {"lost_secs": LOST_SECS}}
    with running_cluster(settings, work=tmp_path_factory.mktemp("gated-cluster"), supervisors=0) as cluster:
        yield cluster


@pytest.fixture
def gated(_gated: Cluster) -> Cluster:
    """3 masters without supervisors; what nobody has for LOST_SECS is lost."""
    _gated.heal()
    return _gated


def submitted(cluster: Cluster, path: Path, name: str, seed: int) -> tuple[str, str]:
    """A job that runs nowhere: its bundle's id and digest, which every master holds."""
    write_tree(path, {"data.bin": some_bytes(SIZE, seed), "job.toml": JOB.format(name=name).encode()})
    bundle = cluster.run("job", "submit", path).ok()["bundle"]
    until(lambda: len(cluster.holders(bundle, at=cluster.leader())) == 3, f"three copies of {bundle}")
    return bundle, make_metafile(path).digest


def take_away(cluster: Cluster, master: str, digest: str) -> None:
    """The disk of a master that is down loses one bundle."""
    (cluster.store(master) / "bundles" / digest).unlink()
    shutil.rmtree(cluster.store(master) / "objects" / digest)


class Leaders:
    """Asks the masters all the time who leads, and what the leader has published then."""

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
    """Broken, the leader's dead disk leaves nobody to lead, or somebody leads who lacks a live job's bundle."""
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


@pytest.mark.case("A17")
def test_what_nobody_has_is_called_lost_and_bars_nobody(gated: Cluster, tmp_path: Path) -> None:
    """Broken, one bundle that is gone everywhere leaves the cluster without a leader for ever."""
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
    assert 'torrentdist_bundles{state="lost"} 1' in metrics
    assert "every copy of a bundle is lost" in logs
    assert "active" == job["status"]
    assert ("available", 3) == (healed["state"], healed["replicas"])
