"""A whole cluster whose tree is closed to others, used by the command line and the doctor."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, running_cluster, until
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from torrentdist.testing.sample_trees import write_tree

SECRET = "td:s3cret"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and a supervisor that share a secret for ZooKeeper."""
    work = tmp_path_factory.mktemp("closed-cluster")
    auth = work / "auth"
    auth.write_text(SECRET + "\n")
    auth.chmod(0o600)
    with running_cluster({"zookeeper": {"auth_file": str(auth)}}, work=work, masters=1, supervisors=1) as cluster:
        yield cluster


@contextlib.contextmanager
def zookeeper_of(cluster: Cluster, secret: str = "") -> Iterator[KazooClient]:
    client = KazooClient(cluster.dev.state.zookeeper, auth_data=[("digest", secret)] if secret else None)
    client.start(30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def test_everything_works_in_it_and_a_stranger_can_change_nothing(closed: Cluster, tmp_path: Path) -> None:
    """If this fails, every user who reaches ZooKeeper can run code on every host, or our own
    daemons cannot."""
    write_tree(tmp_path / "source", {"data": b"x" * 1000})
    closed.upload(tmp_path / "source", "kept", replicas=1)
    closed.run("bundle", "distribute", "kept", "--wait", "100%").ok()
    with zookeeper_of(closed) as stranger:
        for path in ("assignments/supervisor-1", "code-distributor/kept", "epoch"):
            with pytest.raises(NoAuthError):
                stranger.set(f"{closed.root}/{path}", b"mine")
        with pytest.raises(NoAuthError):
            stranger.create(f"{closed.root}/election/x-", b"mallory", ephemeral=True, sequence=True)
    told = closed.run("doctor", "--config", closed.dev.config_of("master-1"), "--masters", closed.url("master-1"))
    acl = [(f["verdict"], f["detail"]) for f in told.json["findings"] if f["check"] == "acl"]

    assert [("ok", "only holders of zookeeper.auth_file may write, as a request without it confirmed")] == acl


def test_a_master_refuses_a_tree_that_has_become_open_and_mends_it_when_told_to(closed: Cluster) -> None:
    """If this fails, a znode that every user may write stays so without a message."""
    with zookeeper_of(closed, SECRET) as owner:
        owner.set_acls(f"{closed.root}/assignments", OPEN_ACL_UNSAFE)
    closed.dev.signal("master-1", signal.SIGTERM)
    refused = closed.run("master", "--config", closed.dev.config_of("master-1"))
    mending = closed.begin("master", "--repair-acls", "--config", closed.dev.config_of("master-1"))
    until(lambda: closed.status("master-1", "/leaderz") == 200, "it leads")
    mending.process.send_signal(signal.SIGTERM)
    mended = mending.end()
    closed.start("master-1")
    closed.dev.wait_ready()

    assert (refused.code, mended.code) == (4, 0)
    assert "/assignments is open to others" in refused.stderr
    assert "--repair-acls" in refused.stderr
