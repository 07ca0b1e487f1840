"""A new version of a large file: only the parts that changed cross the network."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, NewCluster, until
from wire_counters import settled

from torrentdist.testing.sample_trees import some_bytes, write_tree

MEMBERS = 64
MEMBER_BYTES = 1_000_000
MOST_NEW = 3_000_000
"""Two changed members, and the chunks and pieces at their ends."""


def same_time(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = 0
    return member


def make_archive(top: Path, name: str, changed: dict[int, bytes], seed: int, members: int) -> Path:
    """Makes a .tar of a directory in which some members have other content."""
    files = {f"{number:02}.bin": some_bytes(MEMBER_BYTES, seed + number) for number in range(members)}
    tree = top / f"tree of {name}"
    write_tree(tree, files | {f"{number:02}.bin": content for number, content in changed.items()})
    path = top / name
    with tarfile.open(path, "w") as archive:
        for member in sorted(tree.iterdir()):
            archive.add(member, arcname=f"env/{member.name}", filter=same_time)
    return path


def make_versions(top: Path, seed: int, members: int = MEMBERS) -> tuple[Path, Path]:
    """Makes two versions. The second has a longer member near its beginning."""
    old = make_archive(top, "env-42.tar", {}, seed, members)
    changed = {3: some_bytes(MEMBER_BYTES + 123_457, seed + 1000), 12: some_bytes(MEMBER_BYTES, seed + 1001)}
    return old, make_archive(top, "env-43.tar", changed, seed, members)


@pytest.mark.case("H1")
def test_only_the_changed_parts_of_an_archive_cross_the_network(cluster: Cluster, tmp_path: Path) -> None:
    """People who ship one .tar would move all of it to every host each day."""
    old, new = make_versions(tmp_path, 1)
    size = new.stat().st_size
    members = [*cluster.masters(), *cluster.supervisors()]
    cluster.upload(old, "tar-42")
    cluster.run("bundle", "distribute", "tar-42").ok()
    before = {name: settled(cluster, name) for name in members}
    preview = cluster.run("upload", new, "--id", "tar-43", "--dry-run").ok()
    uploaded = cluster.upload(new, "tar-43")
    spread = cluster.run("bundle", "distribute", "tar-43").ok()
    difference = cluster.run("bundle", "diff", "tar-42", "tar-43").ok()

    for view in (preview, uploaded, difference):
        assert 2_000_000 < view["new_bytes"] < MOST_NEW
    assert uploaded["reused_from"] == ["tar-42"]
    assert spread["sources"]["local"] > 2 * (size - MOST_NEW)
    for name in members:
        assert settled(cluster, name) - before[name] < 1.2 * MOST_NEW, name
        assert new.read_bytes() == (cluster.content(name, uploaded["digest"]) / "env-43.tar").read_bytes()


@pytest.mark.case("H1")
def test_a_download_takes_parts_of_an_older_archive(cluster: Cluster, tmp_path: Path) -> None:
    """A host without a supervisor would fetch the whole archive again."""
    old, new = make_versions(tmp_path, 3000)
    cluster.upload(new, "tar-from")
    view = cluster.run("download", "tar-from", tmp_path / "dest.tar", "--no-supervisor", "--from", old).ok()

    assert view["sources"]["masters"] < MOST_NEW
    assert view["sources"]["local"] > view["size"] - MOST_NEW
    assert new.read_bytes() == (tmp_path / "dest.tar").read_bytes()


@pytest.mark.case("H2")
@pytest.mark.case("H4")
def test_a_host_that_dies_while_it_copies_parts_has_the_right_archive_in_the_end(
    new_cluster: NewCluster, tmp_path: Path
) -> None:
    """A crash would leave parts of an archive that nobody checked."""
    cluster = new_cluster({"swarm": {"upload_limit": 2_000_000}}, masters=1, supervisors=1)
    old, new = make_versions(tmp_path, 6000, members=16)
    [host] = cluster.supervisors()
    cluster.upload(old, "tar-42", replicas=1)
    cluster.run("bundle", "distribute", "tar-42").ok()
    uploaded = cluster.upload(new, "tar-43", replicas=1)
    running = cluster.begin("bundle", "distribute", "tar-43")
    arriving = cluster.content(host, uploaded["digest"]) / "env-43.tar"
    until(lambda: arriving.exists() and arriving.stat().st_blocks > 200, "some of it is here")
    cluster.kill(host)
    cluster.start(host)
    spread = running.end().ok()

    assert spread["done"] == 1
    assert new.read_bytes() == arriving.read_bytes()
