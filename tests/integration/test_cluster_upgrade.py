"""A rolling upgrade: two releases with different record schemas, side by side and one after the
other."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cluster_fixtures import Cluster, NewCluster, picture, until
from zookeeper_fixtures import records_client

from torrentdist.model.records import SCHEMA
from torrentdist.testing.sample_trees import some_bytes, write_tree

NEWER = "next_release.py"
LAST = "last_release.py"


def upgrade(cluster: Cluster, *names: str) -> None:
    for name in names:
        cluster.dev.signal(name, signal.SIGTERM)
        cluster.dev.programs[name] = NEWER
        cluster.start(name)
    cluster.dev.wait_ready()


def downgrade(cluster: Cluster, *names: str) -> None:
    """Starts all daemons as if these had never been upgraded."""
    members = [*cluster.masters(), *cluster.supervisors()]
    for name in members:
        cluster.dev.signal(name, signal.SIGTERM)
    until(lambda: not any(cluster.alive(name) for name in members), "all daemons end")
    with records_client(cluster.tree) as client:
        record = msgspec.json.decode(client.get("/cluster")[0])
        client.set("/cluster", msgspec.json.encode(record | {"schema": 1}))
    cluster.dev.programs |= dict.fromkeys(names, LAST)
    cluster.start(*names)  # first, so that the others find them registered
    cluster.start(*[name for name in members if name not in names])
    cluster.dev.wait_ready()


@contextmanager
def records_of(cluster: Cluster) -> Iterator[Any]:
    with records_client(cluster.tree) as client:
        yield lambda path: msgspec.json.decode(client.get(path)[0])


def test_masters_of_two_releases_side_by_side(new_cluster: NewCluster, tmp_path: Path) -> None:
    """If this failed, a rolling upgrade would hide records from the masters and hosts that are not
    upgraded yet, or leave some behind that the release after the next cannot read. It takes long:
    each master starts in two releases."""
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


def many_files(top: Path, seed: int) -> Path:
    write_tree(top, {f"d{number % 7}/f{number:03}": some_bytes(700 + number, seed + number) for number in range(300)})
    return top


@pytest.mark.case("N3")
def test_small_files_in_an_upgrade_from_the_last_release(new_cluster: NewCluster, tmp_path: Path) -> None:
    """Hosts of the last release would lack a bundle during an upgrade, or the new ones an old
    bundle after it. It takes long: all daemons start three times."""
    rolling = new_cluster({"master": {"upgrade_after_secs": 1.0}}, masters=2, supervisors=2)
    older = ("master-2", "supervisor-2")
    downgrade(rolling, *older)
    source = many_files(tmp_path / "source", 820)
    before = rolling.upload(source, "during", replicas=2)
    during = rolling.run("bundle", "distribute", "during").ok()
    homes = [rolling.content(name, before["digest"]) for name in (*rolling.masters(), *rolling.supervisors())]
    forms = [(home.parent / "packs").exists() for home in homes]
    seen = [picture(home) for home in homes]
    for name in older:
        rolling.dev.signal(name, signal.SIGTERM)
        del rolling.dev.programs[name]
        rolling.start(name)
    rolling.dev.wait_ready()
    with records_of(rolling) as record:
        until(lambda: record("/cluster")["schema"] == SCHEMA, "the schema is raised")
    again = rolling.upload(source, "during", replicas=2)
    (source / "d3/f003").write_bytes(b"patched")
    after = rolling.upload(source, "after", replicas=2)
    told = rolling.run("bundle", "distribute", "after").ok()
    rolling.run("download", "during", tmp_path / "dest").ok()

    assert ([False] * 4, [seen[0]] * 4) == (forms, seen)
    assert before["digest"] == again["digest"] != after["digest"]
    assert (2, 2, 7) == (during["done"], told["done"], after["new_bytes"])
    assert all(
        picture(source) == picture(home) and (home.parent / "packs").exists()
        for home in (rolling.content(name, after["digest"]) for name in (*rolling.masters(), *rolling.supervisors()))
    )
    assert seen[0] == picture(tmp_path / "dest")
