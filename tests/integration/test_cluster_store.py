"""What hosts keep in their stores, and hand out of them."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import httpx
import pytest
from cluster_fixtures import Cluster, disk_bytes, picture, until

from torrentdist.testing.sample_trees import some_bytes, write_tree


@pytest.mark.case("G3")
def test_a_bundle_that_was_downloaded_twice_can_go(cluster: Cluster, tmp_path: Path) -> None:
    """If this failed, each bundle that a host downloaded twice would stay until the disk is
    full."""
    write_tree(tmp_path / "source", {"data.bin": some_bytes(200_000, 31)})
    digest = cluster.upload(tmp_path / "source", "twice")["digest"]
    for number in range(2):
        cluster.run("download", "twice", tmp_path / f"dest-{number}").ok()

    young = cluster.run("bundle", "prune", "--older-than", "1h").ok()
    pruned = cluster.run("bundle", "prune").ok()

    reasons = [kept["reasons"] for kept in young["stays"] if kept["ids"] == ["twice"]]
    assert [["used_lately"]] == reasons
    assert digest in pruned["removed"]


def write_under_size_and_times(path: Path) -> None:
    """Writes to the file and keeps its size and times, as a job that runs as root can do, or an
    owner of a hard link."""
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(b"changed by somebody")
    path.chmod(0o444)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def gateway(cluster: Cluster) -> str:
    return next(p.gateway for p in cluster.dev.state.processes if p.id == "supervisor-1")


def through_file(cluster: Cluster, bundle: str, dest: Path) -> bytes:
    return httpx.get(f"{gateway(cluster)}/bundles/{bundle}/files/lib/data.bin", timeout=30).raise_for_status().content


def through_symlink(cluster: Cluster, bundle: str, dest: Path) -> bytes:
    url = f"{gateway(cluster)}/bundles/{bundle}/files/link"
    until(lambda: httpx.get(url, timeout=30).status_code == 200, "a symlink of a bundle that arrived again")
    return httpx.get(url, timeout=30).content


def through_archive(cluster: Cluster, bundle: str, dest: Path) -> bytes:
    answer = httpx.get(f"{gateway(cluster)}/bundles/{bundle}/archive.tar", timeout=30).raise_for_status()
    with tarfile.open(fileobj=BytesIO(answer.content)) as made:
        member = made.extractfile("lib/data.bin")
        assert member is not None
        return member.read()


def through_download(cluster: Cluster, bundle: str, dest: Path) -> bytes:
    cluster.run("download", bundle, dest).ok()
    return (dest / "lib" / "data.bin").read_bytes()


DOORS = (through_file, through_symlink, through_archive, through_download)


@pytest.mark.case("G2")
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_what_was_changed_in_a_store_is_not_handed_out(
    cluster: Cluster, tmp_path: Path, door: Callable[[Cluster, str, Path], bytes]
) -> None:
    """If this failed, a program on the host would get other bytes than were uploaded, with exit
    code 0."""
    bundle = f"changed-{door.__name__.replace('_', '-')}"
    write_tree(tmp_path / "source", {"lib/data.bin": some_bytes(300_000, len(bundle)), "other": b"other"})
    (tmp_path / "source" / "link").symlink_to("lib/data.bin")
    digest = cluster.upload(tmp_path / "source", bundle)["digest"]
    cluster.run("download", bundle, tmp_path / "before").ok()
    write_under_size_and_times(cluster.content("supervisor-1", digest) / "lib" / "data.bin")

    assert some_bytes(300_000, len(bundle)) == door(cluster, bundle, tmp_path / "dest")
    until(lambda: cluster.published("supervisor-1", digest), "the bundle published again")
    assert picture(tmp_path / "source") == picture(cluster.content("supervisor-1", digest))


@pytest.mark.case("G2")
def test_a_file_beside_those_of_a_bundle_is_not_handed_out(cluster: Cluster, tmp_path: Path) -> None:
    """If this failed, a file that a job left in the store would be served as a part of the
    bundle."""
    write_tree(tmp_path / "source", {"lib/data.bin": some_bytes(1000, 5)})
    digest = cluster.upload(tmp_path / "source", "foreign")["digest"]
    cluster.run("download", "foreign", tmp_path / "dest").ok()
    (cluster.content("supervisor-1", digest) / "lib" / "foreign").write_bytes(b"foreign")
    answer = httpx.get(f"{gateway(cluster)}/bundles/foreign/files/lib/foreign", timeout=30)

    assert 404 == answer.status_code


@pytest.mark.case("G2")
def test_a_master_repairs_what_a_peer_refused(cluster: Cluster, tmp_path: Path) -> None:
    """If this failed, a holder would send wrong bytes for a day, and every receiver would fetch
    them again elsewhere."""
    write_tree(tmp_path / "source", {"lib/data.bin": some_bytes(3_000_000, 41)})
    digest = cluster.upload(tmp_path / "source", "refused")["digest"]
    until(lambda: all(cluster.published(master, digest) for master in cluster.masters()), "three copies")
    holder = cluster.masters()[0]
    write_under_size_and_times(cluster.content(holder, digest) / "lib" / "data.bin")
    cluster.run("download", "refused", tmp_path / "dest", "--no-supervisor").ok()

    def is_whole() -> bool:
        return cluster.published(holder, digest) and picture(cluster.content(holder, digest)) == expected

    expected = picture(tmp_path / "source")
    assert expected == picture(tmp_path / "dest")
    until(is_whole, "the master's copy repaired")


@pytest.mark.case("G2")
def test_a_download_changes_no_store_and_a_second_one_does_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """If this failed, a user who edits a download would edit the bundle of every job on this host,
    or a script would copy it at each run."""
    write_tree(tmp_path / "source", {"data.bin": some_bytes(100_000, 51), "run.sh": b"#!/bin/sh\n"})
    (tmp_path / "source" / "run.sh").chmod(0o755)
    digest = cluster.upload(tmp_path / "source", "own-copy")["digest"]
    cluster.run("download", "own-copy", tmp_path / "through-host").ok()
    cluster.run("download", "own-copy", tmp_path / "as-peer", "--no-supervisor").ok()
    stamp = (tmp_path / "through-host" / "data.bin").stat().st_ctime_ns
    again = cluster.run("download", "own-copy", tmp_path / "through-host").ok()
    modes = [[oct((top / name).stat().st_mode) for name in ("data.bin", "run.sh")] for top in both(tmp_path)]

    assert 100_010 == again["sources"]["local"]
    assert stamp == (tmp_path / "through-host" / "data.bin").stat().st_ctime_ns
    assert [["0o100644", "0o100755"]] * 2 == modes
    assert 1 == (cluster.content("supervisor-1", digest) / "data.bin").stat().st_nlink


def both(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "through-host", tmp_path / "as-peer"


JOB = """
name = "sound"
command = ["sh", "-c", "cat bundle/word; echo; exec sleep 1000"]
"""


@pytest.mark.case("G2")
def test_a_worker_does_not_start_over_a_changed_bundle(cluster: Cluster, tmp_path: Path) -> None:
    """If this failed, a job would run what another job wrote into the store of its host."""
    write_tree(tmp_path / "source", {"word": b"published by its author, long ago", "job.toml": JOB.encode()})
    digest = cluster.upload(tmp_path / "source", "sound")["digest"]
    cluster.run("bundle", "distribute", "sound").ok()
    for supervisor in cluster.supervisors():
        write_under_size_and_times(cluster.content(supervisor, digest) / "word")
    cluster.run("job", "submit", "sound").ok()

    def output() -> str:
        return cluster.run("job", "logs", "sound").stdout

    until(lambda: output().strip() not in ("", "[]"), "what the worker printed")
    printed = output()
    cluster.run("job", "kill", "sound").ok()

    assert "published" in printed
    assert "changed by somebody" not in printed


def test_a_sparse_file_keeps_its_holes_everywhere(cluster: Cluster, tmp_path: Path) -> None:
    """A file of 256 MiB with 4 KiB of data would take 256 MiB at each master, each host and each
    DEST."""
    (tmp_path / "source").mkdir()
    with (tmp_path / "source" / "index").open("wb") as file:
        file.truncate(1 << 28)
        file.seek(1 << 27)
        file.write(os.urandom(4096))
    digest = cluster.upload(tmp_path / "source", "sparse")["digest"]
    cluster.run("download", "sparse", tmp_path / "through-host").ok()
    cluster.run("download", "sparse", tmp_path / "as-peer", "--no-supervisor").ok()
    stores = [cluster.content(name, digest) for name in (*cluster.masters(), "supervisor-1")]
    taken = {str(top): disk_bytes(top) for top in (*stores, *both(tmp_path))}

    assert [] == [top for top, count in taken.items() if not 4096 <= count <= 16 * 1024 * 1024]
    assert 0 == cluster.run("bundle", "verify", "sparse", tmp_path / "through-host").code
    assert 0 == cluster.run("bundle", "verify", "sparse", tmp_path / "as-peer").code
