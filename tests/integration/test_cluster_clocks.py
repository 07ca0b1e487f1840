"""Wall clocks that jump under running daemons: nothing is decided by them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_fixtures import Cluster, NewCluster, picture, throughout, until

from torrentdist.testing.sample_trees import some_bytes, write_tree

MIB = 1024 * 1024
DAY = 86_400.0


def set_clock(cluster: Cluster, name: str, off_by: float) -> None:
    fresh = cluster.dev.config_of(name).with_suffix(".new")
    fresh.write_text(str(off_by))
    fresh.rename(cluster.dev.config_of(name).with_suffix(".skew"))


@pytest.mark.case("E6")
def test_a_clock_that_jumps_changes_nothing(new_cluster: NewCluster, tmp_path: Path) -> None:
    """If this fails, an administrator who sets a clock ends a leadership, an upload or a worker, or
    brings back what was removed. It takes long: a cluster with clocks of its own starts."""
    cluster = new_cluster(masters=2, supervisors=1)
    members = [*cluster.masters(), *cluster.supervisors()]
    for name in members:
        cluster.dev.programs[name] = "skewed_clock.py"
    cluster.kill(*members)
    cluster.start(*members)
    cluster.dev.wait_ready()
    source = tmp_path / "source"
    write_tree(source, {"data.bin": some_bytes(3 * MIB, 850)})
    cluster.upload(source, "removed", replicas=2)
    cluster.run("bundle", "rm", "removed").ok()
    headers = {"X-Request-Id": "once"}
    leader, [standby], [host] = cluster.leader(), cluster.standbys(), cluster.supervisors()
    write_tree(source, {"data.bin": some_bytes(3 * MIB, 851)})
    cluster.upload(source, "kept", replicas=2)
    first = cluster.http.put(cluster.url(leader) + "/v1/bundles/kept/pin", headers=headers)
    before = cluster.run("ha", "leader").ok()

    write_tree(source, {"data.bin": some_bytes(3 * MIB, 852)})
    uploading = cluster.begin("upload", source, "--id", "under-way", "--min-replicas", 2, swarm__upload_limit=2 * MIB)
    until(lambda: cluster.get(leader, "/v1/bundles/under-way?uploading=true"), "the upload has begun")
    for name, days in ((leader, 400), (standby, -400), (host, 40)):
        set_clock(cluster, name, days * DAY)
    steady = throughout(lambda: cluster.status(leader, "/leaderz") == 200, 1.0)
    for name, days in ((leader, -3000), (standby, 3000), (host, -1)):
        set_clock(cluster, name, days * DAY)
    ended = uploading.end()
    steady = steady and throughout(lambda: cluster.status(leader, "/leaderz") == 200, 0.5)
    cluster.run("bundle", "unpin", "kept").ok()
    again = cluster.http.put(cluster.url(leader) + "/v1/bundles/kept/pin", headers=headers)
    cluster.run("bundle", "distribute", "under-way", "--wait", "100%").ok()
    listed = {view["id"]: view["pinned"] for view in cluster.run("bundle", "ls").ok()}
    diagnosis = cluster.run("doctor")
    warned = {f["check"] for f in diagnosis.json["findings"] if f["verdict"] == "warn"}
    cluster.run("download", "under-way", tmp_path / "dest").ok()

    assert steady
    assert before == cluster.run("ha", "leader").ok()
    assert 0 == ended.code, ended.stderr
    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert {"kept": False, "under-way": False} == listed
    assert picture(source) == picture(tmp_path / "dest")
    assert "clock" in warned
