"""A supervisor whose store has passed its high mark."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from cluster_fixtures import Cluster, NewCluster, make_source, picture, until

HOST = "supervisor-1"
SIZE = 300_000


def test_nothing_goes_before_the_assignment_is_known(new_cluster: NewCluster, tmp_path: Path) -> None:
    """A host that restarts while ZooKeeper is away would drop what it was told to keep."""
    cluster = new_cluster(masters=1, supervisors=1, own_zookeeper=True)
    cluster.run("upload", make_source(tmp_path / "needed", 1, SIZE), "--id", "needed").ok()
    cluster.run("bundle", "distribute", "needed", "--wait", "100%").ok()
    cluster.dev.signal("zookeeper-1", signal.SIGSTOP)
    cluster.dev.signal(HOST, signal.SIGTERM)
    cluster.dev.start(HOST)
    try:
        until(lambda: reasons_to_stay(cluster) == ["assignment_unknown"], "it knows of copies, and keeps its own", 40.0)
    finally:
        cluster.dev.signal("zookeeper-1", signal.SIGCONT)
    until(lambda: reasons_to_stay(cluster) == ["assigned"], "it knows its assignment", 40.0)


def reasons_to_stay(cluster: Cluster) -> list[str]:
    """Prunes, and returns why the only bundle stays."""
    pruned = cluster.run("bundle", "prune")
    if pruned.code != 0:
        return []
    view = pruned.ok()
    assert view["removed"] == [], "it is gone"
    return [reason for kept in view["stays"] for reason in kept["reasons"]]


def test_a_bundle_that_made_room_arrives_again(new_cluster: NewCluster, tmp_path: Path) -> None:
    """Its old transfer would count as complete, so that the bundle never came again, or with bytes
    that nobody has verified."""
    cluster = new_cluster(masters=1, supervisors=1)
    cluster.reconfigure(HOST, {"store": {"limit_bytes": SIZE + SIZE // 2}})
    sources = {name: make_source(tmp_path / name, seed, SIZE) for seed, name in enumerate(("first", "second"))}
    for name, source in sources.items():
        cluster.run("upload", source, "--id", name).ok()
    for number, name in enumerate(("first", "second", "first", "second")):
        cluster.run("download", name, tmp_path / f"copy-{number}", "--timeout", "30s").ok()

    digests = {view["id"]: view["digest"] for view in cluster.run("bundle", "ls").ok()}
    here = [name for name, digest in digests.items() if (cluster.dev.dir / HOST / "bundles" / digest).exists()]
    assert here == ["second"]
    assert picture(sources["second"]) == picture(tmp_path / "copy-3")


def test_a_store_above_its_mark_drops_what_nobody_needs(new_cluster: NewCluster, tmp_path: Path) -> None:
    """The disk fills up with bundles that nobody uses, or an assigned one goes although it is idle
    too."""
    cluster = new_cluster(masters=1, supervisors=1)
    for seed, bundle in enumerate(("needed", "idle", "young")):
        cluster.run("upload", make_source(tmp_path / bundle, seed, SIZE), "--id", bundle).ok()
    cluster.run("bundle", "distribute", "needed", "--wait", "100%").ok()
    for bundle in ("idle", "young"):
        cluster.run("download", bundle, tmp_path / f"copy-{bundle}").ok()
    digests = {view["id"]: view["digest"] for view in cluster.run("bundle", "ls").ok()}
    bundles = cluster.dev.dir / HOST / "bundles"
    before = {name for name, digest in digests.items() if (bundles / digest).exists()}
    cluster.dev.signal(HOST, signal.SIGTERM)
    for bundle in ("needed", "idle"):
        os.utime(cluster.dev.dir / HOST / "objects" / digests[bundle] / "index", (0, 0))
    cluster.reconfigure_stopped(HOST, {"store": {"high": SIZE, "low": SIZE // 2}})
    until(lambda: not (bundles / digests["idle"]).exists(), "the idle bundle is gone")
    after = {name for name, digest in digests.items() if (bundles / digest).exists()}

    assert before == {"needed", "idle", "young"}
    assert after == {"needed", "young"}
