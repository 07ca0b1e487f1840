"""Masters that start while ZooKeeper is away: what they serve, what they refuse, and how they come
back."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_fixtures import Cluster, NewCluster, make_source, picture, until

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.master.bundles.bundle_views import bundle_list
from torrentdist.master.reads.saved_records import NAME, decode_saved
from torrentdist.model.ids import BundleId
from torrentdist.model.records import BundleState


def has_saved(cluster: Cluster, name: str, bundle: str) -> bool:
    """Whether this master has saved that both masters hold the bundle and that it is available."""
    file = cluster.store(name) / NAME
    snapshot = decode_saved(file.read_bytes(), str(file)).snapshot if file.exists() else ClusterSnapshot()
    return len(snapshot.holders(BundleId(bundle))) == 2 and bundle_list(snapshot)[0].state is BundleState.AVAILABLE


def found_wrong(cluster: Cluster) -> list[str]:
    """Returns which checks of the doctor fail at master-1 once it sees that ZooKeeper is gone."""
    until(lambda: cluster.status("master-1", "/readyz") == 503, "it says that it is not ready")
    config, master = cluster.dev.config_of("master-1"), cluster.url("master-1")
    ran = cluster.run("doctor", "--config", config, "--masters", master)
    assert ran.code == 5
    return [f["check"] for f in ran.json["findings"] if f["verdict"] == "fail"]


@pytest.mark.case("A24")
def test_a_restart_without_zookeeper_serves_and_seeds_everything_and_says_how_old_it_is(
    own_zookeeper: EmbeddedZooKeeper, new_cluster: NewCluster, tmp_path: Path
) -> None:
    """If this fails, every bundle is away after a power cut until ZooKeeper is back. It takes long:
    all daemons start twice."""
    cluster = new_cluster(
        {"master": {"snapshot_secs": 0.5}}, masters=2, supervisors=0, zookeeper=own_zookeeper.addresses[0]
    )
    content = make_source(tmp_path / "content", 1)
    cluster.upload(content, "kept", replicas=2)
    for name in cluster.masters():
        until(lambda: has_saved(cluster, name, "kept"), f"{name} has saved it, leader or not")  # noqa: B023
    own_zookeeper.servers[0].kill()
    for name in cluster.masters():
        until(lambda: (cluster.get(name, "/v1/cluster").get("stale_secs") or 0.0) > 2.0, f"{name} is cut off")  # noqa: B023
    failed = found_wrong(cluster)
    last = cluster.run("ha", "leader").ok()
    needing = [cluster.begin("ha", *args) for args in (["failovers"], ["backup", tmp_path / "file"])]
    ended = [command.end() for command in needing]
    cluster.kill(*cluster.masters())
    cluster.start(*cluster.masters())
    asked = cluster.run("cluster")
    view = asked.ok()
    headers = cluster.http.get(cluster.url("master-1") + "/v1/bundles/kept").headers
    listed = [bundle["id"] for bundle in cluster.get("master-2", "/v1/bundles")]
    cluster.run("download", "kept", tmp_path / "dest").ok()
    refused = cluster.run("bundle", "rm", "kept", client__deadline_secs=1)
    again = cluster.run("upload", content, "--id", "kept", client__deadline_secs=1)
    nobody = cluster.run("ha", "leader", client__deadline_secs=1)

    assert failed[0] == "zookeeper", "the doctor names symptoms before the cause"
    assert {"ready", "records"} <= set(failed)
    assert last["stale_secs"] > 0
    assert [5, 5] == [ran.code for ran in ended]
    assert all("cut off" in ran.stderr for ran in ended)
    assert max(ran.seconds for ran in ended) < 30  # a client's deadline is 60
    assert view["stale_secs"] > 0
    assert "warning: the records behind this are" in asked.stderr
    assert (view["leader"], view["bundles"]["available"]) == (None, 1)
    assert int(headers["X-Stale"]) >= 0
    assert listed == ["kept"]
    assert picture(tmp_path / "dest") == picture(content)
    assert (refused.code, again.code, nobody.code) == (5, 5, 5)
    assert "ZooKeeper does not answer" in refused.stderr

    own_zookeeper.servers[0].spawn()
    cluster.leader()
    until(lambda: cluster.get("master-1", "/v1/cluster")["stale_secs"] is None, "fresh again")
    assert "X-Stale" not in cluster.http.get(cluster.url("master-1") + "/v1/bundles/kept").headers
    assert cluster.run("bundle", "rm", "kept").ok()["state"] == "removed"
    assert cluster.get("master-1", "/v1/bundles") == []
