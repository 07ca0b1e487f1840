"""A rolling upgrade: two releases with different record schemas, side by side and one after the
other."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from cluster_fixtures import Cluster, NewCluster, until
from zookeeper_fixtures import records_client

from torrentdist.model.records import SCHEMA
from torrentdist.testing.sample_trees import some_bytes, write_tree

NEWER = "next_release.py"


def upgrade(cluster: Cluster, *names: str) -> None:
    for name in names:
        cluster.dev.signal(name, signal.SIGTERM)
        cluster.dev.programs[name] = NEWER
        cluster.start(name)
    cluster.dev.wait_ready()


@contextmanager
def records_of(cluster: Cluster) -> Iterator[Any]:
    with records_client(cluster.dev.state.zookeeper) as client:
        yield lambda path: msgspec.json.decode(client.get(path)[0])


def test_masters_of_two_releases_side_by_side(new_cluster: NewCluster, tmp_path: Path) -> None:
    """If this failed, a rolling upgrade would hide records from the masters and hosts that are not
    upgraded yet, or leave some behind that the release after the next cannot read."""
    rolling = new_cluster({"master": {"upgrade_after_secs": 1.0}}, masters=2, supervisors=1)
    source = tmp_path / "source"
    write_tree(source, {"data.bin": some_bytes(100_000, 800)})
    rolling.upload(source, "before", replicas=2)
    upgrade(rolling, "master-1")
    until(lambda: rolling.run("ha", "transfer", "master-1").code == 0, "the newer release leads")
    write_tree(source, {"data.bin": some_bytes(100_000, 801)})
    rolling.upload(source, "meanwhile", replicas=2)
    rolling.run("bundle", "pin", "meanwhile").ok()
    rolling.run("bundle", "distribute", "meanwhile", "--wait", "100%").ok()
    seen_by_older = {view["id"]: view["replicas"] for view in rolling.get("master-2", "/v1/bundles")}

    written = ("/cluster", "/code-distributor/before", "/code-distributor/meanwhile", "/assignments/supervisor-1",
               "/code-distributor/meanwhile/master-1", "/masters/master-1", "/masters/master-2")  # fmt: skip
    with records_of(rolling) as record:
        side_by_side = {path: record(path)["schema"] for path in written}
        new_field = "pinned" in record("/code-distributor/meanwhile")
        upgrade(rolling, "master-2", "supervisor-1")
        until(lambda: all(record(path)["schema"] == SCHEMA + 1 for path in written), "all is written anew", 40.0)
        rolling.run("bundle", "pin", "meanwhile").ok()
        pinned = record("/code-distributor/meanwhile")["pinned"]
    views = rolling.run("bundle", "ls").ok()
    rolling.run("download", "meanwhile", tmp_path / "dest").ok()

    assert {"before": 2, "meanwhile": 2} == seen_by_older
    assert dict.fromkeys(written, SCHEMA) == side_by_side
    assert (False, True) == (new_field, pinned)
    assert [("before", 2), ("meanwhile", 2)] == [(view["id"], view["replicas"]) for view in views]

    # A daemon that was left behind says why it cannot take part, and changes nothing.
    del rolling.dev.programs["master-2"]
    rolling.dev.signal("master-2", signal.SIGTERM)
    rolling.dev.start("master-2")
    until(lambda: not rolling.alive("master-2"), "it ends")

    assert "error[later_release]" in (rolling.dir / "master-2.log").read_text()
    assert "master-1" == rolling.leader()
