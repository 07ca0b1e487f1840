"""A whole cluster whose ZooKeeper tree is wiped: no daemon writes into it before an operator
restores or founds a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cluster_clients import zookeeper_of
from cluster_fixtures import Cluster, NewCluster, until

pytestmark = [pytest.mark.case("G5"), pytest.mark.case("A13"), pytest.mark.case("D18")]


def wipe(cluster: Cluster) -> None:
    """Deletes the tree, /cluster first."""
    with zookeeper_of(cluster) as client:
        client.delete(f"{cluster.root}/cluster")
        client.delete(cluster.root, recursive=True)


def left(cluster: Cluster) -> list[str]:
    """Returns what is in the tree."""
    with zookeeper_of(cluster) as client:
        return [] if client.exists(cluster.root) is None else client.get_children(cluster.root)


def failing(cluster: Cluster, name: str) -> dict[str, Any]:
    return cluster.http.get(f"{cluster.url(name)}/readyz", timeout=5.0).json().get("failing", {})  # type: ignore[no-any-return]


def lacks(cluster: Cluster) -> bool:
    return all("cluster" in failing(cluster, name) for name in (*cluster.masters(), *cluster.supervisors()))


def make_bundle(path: Path) -> Path:
    path.mkdir()
    (path / "data").write_bytes(b"a bundle" * 1000)
    return path


def test_a_wiped_tree_stops_changes_until_it_is_restored_or_founded_anew(
    new_cluster: NewCluster, tmp_path: Path
) -> None:
    """If this failed, a daemon or a waiting client would found another cluster in the tree, and the
    backup could never be restored. It takes long: a cluster is wiped twice."""
    cluster = new_cluster(masters=2, supervisors=1)
    digest = cluster.upload(make_bundle(tmp_path / "b"), "b-1", 2)["digest"]
    cluster.run("ha", "backup", tmp_path / "backup").ok()
    others_may = (tmp_path / "backup").stat().st_mode & 0o077
    old = cluster.run("ha", "init").ok()
    waiting = cluster.begin("upload", make_bundle(tmp_path / "late"), "--id", "late", "--min-replicas", "9")
    until(lambda: "late" in [b["id"] for b in cluster.get("master-1", "/v1/bundles") or []], "an upload that waits")

    wipe(cluster)
    until(lambda: lacks(cluster), "daemons that say that there is no cluster", 40)
    view = cluster.run("cluster").ok()
    doctor = cluster.run("doctor")
    refused = cluster.run("upload", tmp_path / "b", "--id", "b-2", "--min-replicas", "1")
    cluster.kill("master-2")
    (cluster.store("master-2") / "cluster.snapshot").unlink(missing_ok=True)
    cluster.start("master-2")
    until(lambda: "cluster" in failing(cluster, "master-2"), "a master that waits for a cluster")
    listed = cluster.http.get(f"{cluster.url('master-2')}/v1/bundles")

    assert 0 == others_may
    assert (503, "no_cluster") == (listed.status_code, listed.json()["error"])  # an empty list would say "removed"
    assert "ha init" in view["problem"]
    assert "torrentdist ha restore FILE" in doctor.stdout
    assert 5 == refused.code
    assert "no_cluster" in refused.stderr
    assert "ha init" in refused.stderr
    assert all(cluster.published(name, digest) for name in cluster.masters())
    assert [] == left(cluster)
    waiting.kill()

    cluster.run("ha", "restore", tmp_path / "backup").ok()
    cluster.dev.wait_ready()
    again = cluster.run("ha", "init").ok()
    restored = cluster.run("download", "b-1", tmp_path / "back").ok()

    assert {"cluster": old["cluster"], "founded": False} == again
    assert digest == restored["digest"]

    wipe(cluster)
    until(lambda: lacks(cluster), "daemons that say that there is no cluster", 40)
    new = cluster.run("ha", "init").ok()
    cluster.dev.wait_ready()
    anew = cluster.upload(tmp_path / "b", "b-1", 2)

    assert new["founded"]
    assert new["cluster"] != old["cluster"]
    assert all(cluster.published(name, digest) for name in cluster.masters())
    assert digest == anew["digest"]
