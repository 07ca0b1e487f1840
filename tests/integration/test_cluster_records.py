"""Wrong or missing records in ZooKeeper delete next to nothing on the hosts' disks."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from cluster_clients import zookeeper_of
from cluster_fixtures import Cluster, NewCluster, make_source, part_bytes, picture, throughout, until
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from patience import patient

MIB = 1024 * 1024


def everybody(cluster: Cluster) -> list[str]:
    return [*cluster.masters(), *cluster.supervisors()]


def delete_all(zookeeper: KazooClient, path: str) -> None:
    """Deletes everything in one transaction; otherwise the daemons would write faster than it
    deletes."""

    def below(path: str) -> list[str]:
        children = zookeeper.get_children(path)
        return [*(deep for name in children for deep in below(f"{path}/{name}")), path]

    def deleted() -> bool:
        transaction = zookeeper.transaction()
        try:
            for each in below(path):
                transaction.delete(each)
        except NoNodeError:
            return False
        return all(result is True for result in transaction.commit())

    until(deleted, f"{path} is deleted")


@pytest.fixture
def doomed(new_cluster: NewCluster) -> Cluster:
    """A cluster whose records a test may destroy."""
    return new_cluster()


def test_records_that_are_gone_delete_no_bundle(doomed: Cluster, tmp_path: Path) -> None:
    """A13: if this failed, a mistake in ZooKeeper would delete every copy of every bundle."""
    source = make_source(tmp_path / "source", 500)
    digest = doomed.upload(source, "kept")["digest"]
    doomed.run("bundle", "distribute", "kept", "--wait", "100%").ok()

    def all_have_it() -> bool:
        return all(doomed.published(name, digest) for name in everybody(doomed))

    with zookeeper_of(doomed) as zookeeper:
        # One: the bundles' records are emptied.
        delete_all(zookeeper, f"{doomed.root}/code-distributor")
        until(lambda: doomed.get("master-1", "/v1/bundles") == [], "master-1 sees that there are none")
        assert throughout(all_have_it, 1.0)

        # Second: the whole chroot goes while the daemons run.
        delete_all(zookeeper, doomed.root)
    doomed.run("ha", "init").ok()
    until(lambda: all(doomed.status(name, "/readyz") == 200 for name in doomed.masters()), "all are ready again", 30)
    leader = doomed.leader()
    until(lambda: doomed.registered("master-1", at=leader), "master-1 is registered in the new tree")
    assert throughout(all_have_it, 1.0)

    # The same content under the same id moves no bytes, and the old state is back.
    again = doomed.upload(source, "kept")
    doomed.run("download", "kept", tmp_path / "dest", "--no-supervisor").ok()

    assert (digest, 3) == (again["digest"], again["replicas"])
    assert picture(source) == picture(tmp_path / "dest")
    assert all_have_it()


def test_a_foreign_tree_deletes_no_bundle(doomed: Cluster, tmp_path: Path) -> None:
    """A13: if this failed, one wrong line in a master's configuration would cost it every bundle
    that it holds."""
    digest = doomed.upload(make_source(tmp_path / "source", 510), "elsewhere")["digest"]
    name = doomed.standbys()[0]
    doomed.dev.signal(name, signal.SIGTERM)

    foreign = f"{doomed.root}-foreign"
    doomed.run("ha", "init", zookeeper__chroot=foreign).ok()
    doomed.reconfigure_stopped(name, {"zookeeper": {"chroot": foreign}})
    until(lambda: doomed.status(name, "/leaderz") == 200, "it leads the empty cluster")
    until(lambda: doomed.get(name, "/v1/bundles") == [], "it knows of no bundle")
    kept = throughout(lambda: doomed.published(name, digest), 1.0)
    doomed.dev.signal(name, signal.SIGTERM)
    doomed.start(name)
    until(lambda: name in doomed.holders("elsewhere", at=doomed.leader()), "it holds the bundle as before")

    assert kept


def test_a_removed_bundle_does_not_come_back(battered: Cluster, tmp_path: Path) -> None:
    """A16: if this failed, a host that was away at the removal would bring the bundle back for
    everyone."""
    source = make_source(tmp_path / "source", 520)
    digest = battered.upload(source, "gone-for-good")["digest"]
    battered.run("bundle", "distribute", "gone-for-good", "--wait", "100%").ok()
    away = [battered.standbys()[0], battered.supervisors()[0]]
    battered.kill(*away)

    battered.run("bundle", "rm", "gone-for-good").ok()
    present = [name for name in everybody(battered) if name not in away]
    until(lambda: not any(battered.published(name, digest) for name in present), "those who are there drop it")
    assert all(battered.published(name, digest) for name in away)
    battered.start(*away)
    until(lambda: not any(battered.published(name, digest) for name in away), "those who were away drop it too", 30)
    battered.dev.wait_ready()
    # Even if it leads.
    battered.kill(*[name for name in battered.masters() if name != away[0]])
    until(lambda: battered.leader() == away[0], "it leads")

    assert "gone-for-good" not in [view["id"] for view in battered.get(away[0], "/v1/bundles")]
    assert not any((battered.store(name) / "objects" / digest).exists() for name in everybody(battered))


def test_zookeeper_away_stops_mutations_only(battered: Cluster, tmp_path: Path) -> None:
    """If this failed, an outage of ZooKeeper would hang every command, or end the transfers under
    way."""
    source = make_source(tmp_path / "source", 530, 6 * MIB)
    battered.upload(source, "goes-on")
    downloading = battered.begin(
        "download", "goes-on", tmp_path / "dest", "--no-supervisor", swarm__download_limit=2 * MIB
    )
    until(lambda: part_bytes(tmp_path) > MIB, "something has arrived")

    battered.dev.signal("zookeeper-1", signal.SIGSTOP)
    other = make_source(tmp_path / "other", 540)
    refused = [
        battered.begin(*args, client__deadline_secs=4)
        for args in (
            ("upload", other, "--id", "not-now"),
            ("bundle", "pin", "goes-on"),
        )
    ]
    codes = [running.end(30) for running in refused]
    done = downloading.end(30).ok()
    fresh = battered.run("download", "goes-on", tmp_path / "fresh", "--no-supervisor")
    battered.dev.signal("zookeeper-1", signal.SIGCONT)
    until(lambda: battered.status(battered.leader(), "/readyz") == 200, "all is well again", 30)

    assert [5, 5] == [ran.code for ran in codes]
    assert all(ran.seconds < patient(10) for ran in codes)
    assert picture(source) == picture(tmp_path / "dest")
    assert done["size"] == sum(done["sources"].values())
    assert 0 == fresh.code
    assert 3 == battered.upload(other, "not-now")["replicas"]


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


def test_a_frozen_leader_is_replaced_and_changes_nothing(battered: Cluster, tmp_path: Path) -> None:
    """E2: if this failed, a leader that wakes up after its time would undo what its successor
    did."""
    source = make_source(tmp_path / "source", 560)
    leader = battered.leader()

    battered.dev.signal(leader, signal.SIGSTOP)
    uploaded = battered.run("upload", source, "--id", "after-the-freeze", "--min-replicas", 2).ok()
    successor = battered.leader()
    battered.dev.signal(leader, signal.SIGCONT)
    until(lambda: leader in battered.holders("after-the-freeze", at=successor), "it fetches what it missed")

    assert 2 == uploaded["replicas"]
    assert 503 == battered.status(leader, "/leaderz")
    assert 200 == battered.status(successor, "/leaderz")
