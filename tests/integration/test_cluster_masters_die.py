"""Masters and supervisors are killed during uploads and downloads; bundles survive, and clients get
their answers."""

from __future__ import annotations

import os
from pathlib import Path

from cluster_fixtures import Cluster, NewCluster, make_source, part_bytes, picture, until

from torrentdist.bundle.content_check import verify_content
from torrentdist.bundle.metafile import parse_metafile
from torrentdist.bundle.metafile_maker import make_metafile

MIB = 1024 * 1024
SLOW = 2 * MIB
"""Bytes per second, slow enough to do harm in the middle of a transfer."""


def test_masters_die_in_the_middle_of_a_download(battered: Cluster, tmp_path: Path) -> None:
    """A23: if this failed, a rolling restart of the masters would fail the downloads of the whole
    fleet."""
    source = make_source(tmp_path / "source", 310, 5 * MIB)
    battered.upload(source, "survives")
    leader = battered.leader()
    downloading = battered.begin(
        "download", "survives", tmp_path / "dest", "--no-supervisor", swarm__download_limit=SLOW
    )
    until(lambda: part_bytes(tmp_path) > MIB, "something has arrived")

    battered.kill(leader, battered.standbys()[0])
    downloading.end(30).ok()

    assert picture(source) == picture(tmp_path / "dest")


def test_all_masters_die_and_peers_finish(battered: Cluster, tmp_path: Path) -> None:
    """A23: if this failed, hosts that together have a whole bundle could not complete or use it
    without a master."""
    source = make_source(tmp_path / "source", 330, 5 * MIB)
    battered.upload(source, "peers-finish")
    battered.run("bundle", "distribute", "peers-finish", "--wait", "100%").ok()
    downloading = battered.begin(
        "download", "peers-finish", tmp_path / "dest", "--no-supervisor", swarm__download_limit=SLOW
    )
    until(lambda: part_bytes(tmp_path) > MIB, "something has arrived")

    battered.kill(*battered.masters())
    as_peer = downloading.end(30).ok()
    through_host = battered.run("download", "peers-finish", tmp_path / "own", client__deadline_secs=1).ok()

    assert picture(source) == picture(tmp_path / "dest")
    assert as_peer["sources"]["peers"] > 0
    assert picture(source) == picture(tmp_path / "own")
    assert through_host["size"] == through_host["sources"]["local"]


def test_an_upload_survives_the_leader(battered: Cluster, tmp_path: Path) -> None:
    """B8: if this failed, every failover would fail the uploads that are under way."""
    source = make_source(tmp_path / "source", 370, 6 * MIB)
    leader = battered.leader()
    uploading = battered.begin("upload", source, "--id", "survivor", "--min-replicas", 2, swarm__upload_limit=2 * MIB)
    until(lambda: battered.get(leader, "/v1/bundles/survivor?uploading=true"), "the upload is open")

    battered.kill(leader)
    ended = uploading.end(45).ok()

    assert (True, True) == (ended["achieved"], ended["replicas"] >= 2)
    battered.run("download", "survivor", tmp_path / "dest", "--no-supervisor").ok()
    assert picture(source) == picture(tmp_path / "dest")


def test_the_upload_of_a_killed_client_is_forgotten(battered: Cluster, tmp_path: Path) -> None:
    """A20: if this failed, an upload that no client will complete would keep its id and its room
    for ever."""
    source = make_source(tmp_path / "source", 380, 6 * MIB)
    digest = make_metafile(source).digest
    leader = battered.leader()
    uploading = battered.begin("upload", source, "--id", "abandoned", swarm__upload_limit=MIB)
    until(lambda: battered.get(leader, "/v1/bundles/abandoned?uploading=true"), "the upload is open")
    until(lambda: (battered.store(leader) / "objects" / digest).exists(), "it has begun to arrive")

    uploading.kill()
    listed = [view["id"] for view in battered.run("bundle", "ls").ok()]
    missing = battered.run("download", "abandoned", tmp_path / "dest")
    until(lambda: battered.get(leader, "/v1/bundles/abandoned?uploading=true") is None, "the record expires", 30)
    other = battered.run("upload", make_source(tmp_path / "other", 382), "--id", "abandoned", "--min-replicas", 3)

    assert "abandoned" not in listed
    assert 3 == missing.code
    assert not (tmp_path / "dest").exists()
    assert 3 == other.ok()["replicas"]


def test_a_killed_client_goes_on_with_its_upload(battered: Cluster, tmp_path: Path) -> None:
    """A20: if this failed, an interrupted upload could not be repeated before it expires."""
    source = make_source(tmp_path / "source", 390, 6 * MIB)
    leader = battered.leader()
    uploading = battered.begin("upload", source, "--id", "second-try", swarm__upload_limit=2 * MIB)
    until(lambda: battered.get(leader, "/v1/bundles/second-try?uploading=true"), "the upload is open")

    uploading.kill()
    again = battered.upload(source, "second-try")
    battered.run("download", "second-try", tmp_path / "dest", "--no-supervisor").ok()

    assert 3 == again["replicas"]
    assert picture(source) == picture(tmp_path / "dest")


def test_a_corrupt_byte_is_served_by_nobody_and_repaired(battered: Cluster, tmp_path: Path) -> None:
    """If this failed, a flipped bit on one disk would spread, or stay."""
    source = make_source(tmp_path / "source", 410, 2 * MIB)
    digest = battered.upload(source, "flipped")["digest"]
    victim = battered.standbys()[0]
    damaged = flip_byte(battered.content(victim, digest) / "data.bin")

    battered.run("download", "flipped", tmp_path / "dest", "--no-supervisor").ok()
    battered.kill(victim)
    battered.start(victim)
    until(lambda: (battered.content(victim, digest) / "data.bin").read_bytes() != damaged, "it is repaired")
    until(lambda: victim in battered.holders("flipped", at=battered.leader()), "it is a holder again")

    assert picture(source) == picture(tmp_path / "dest")
    meta = parse_metafile((battered.store(victim) / "objects" / digest / "metafile").read_bytes())
    assert [] == verify_content(meta, battered.content(victim, digest))


def flip_byte(path: Path) -> bytes:
    """Damages one byte as a disk does, without a trace in size or time. Returns the bytes that are
    there now."""
    before = path.stat()
    mode = before.st_mode & 0o777
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(before.st_size // 2)
        old = file.read(1)
        file.seek(before.st_size // 2)
        file.write(bytes([old[0] ^ 1]))
    path.chmod(mode)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return path.read_bytes()


def test_a_supervisor_finds_and_repairs_a_corrupt_byte(battered: Cluster, tmp_path: Path) -> None:
    """If this failed, a job would run damaged code although others have it whole."""
    source = make_source(tmp_path / "source", 420, 2 * MIB)
    digest = battered.upload(source, "flipped-host")["digest"]
    battered.run("bundle", "distribute", "flipped-host", "--wait", "100%").ok()
    victim = battered.supervisors()[0]
    damaged = battered.content(victim, digest) / "data.bin"
    flip_byte(damaged)

    answer = battered.http.post(f"{battered.url(victim)}/v1/host/bundles/flipped-host/verify")
    until(lambda: battered.published(victim, digest) and damaged.exists(), "it is published again")

    assert {"damaged": ["data.bin"]} == answer.json()
    assert picture(source)["data.bin"][1] == damaged.read_bytes()


def test_two_hosts_with_alike_names_are_two(new_cluster: NewCluster, tmp_path: Path) -> None:
    """A14: if this failed, master-1 would be taken for master-10, or bundle b-1 for b-1-0."""
    cluster = new_cluster({"swarm": {"seeding_secs": 2.0}}, masters=1, supervisors=1)
    others = {"master-10": "127.0.0.10", "master-1-0": "127.0.0.1", "supervisor-10": "127.0.0.10"}
    for name, host in others.items():
        role = name.partition("-")[0]
        cluster.write_settings(name, {"api": {"listen": host}, role: {"host": host}})
        cluster.dev.start(name)
    for name in others:
        cluster.dev.wait_started(name)
    masters = ["master-1", "master-1-0", "master-10"]
    until(lambda: all(cluster.registered(n, at="master-1") for n in (*masters, "supervisor-10")), "all are registered")
    digests = {
        bundle: cluster.upload(make_source(tmp_path / bundle, 430 + n), bundle)["digest"]
        for n, bundle in enumerate(("b-1", "b-1-0", "b-10"))
    }
    cluster.run("bundle", "distribute", "b-1", "--supervisors", "supervisor-1", "--wait", "100%").ok()
    cluster.run("bundle", "distribute", "b-10", "--supervisors", "supervisor-10", "--wait", "100%").ok()

    cluster.run("bundle", "rm", "b-1").ok()
    until(lambda: not any(cluster.published(n, digests["b-1"]) for n in (*masters, "supervisor-1")), "b-1 is gone")
    gone = cluster.leader()
    cluster.kill(gone)
    left = [name for name in masters if name != gone]
    until(lambda: sorted(left) == cluster.holders("b-10", at=left[0]), "one holder is gone", 20)

    assert sorted(left) == cluster.holders("b-1-0", at=left[0])
    assert all(cluster.published(n, digests[b]) for n in masters for b in ("b-1-0", "b-10"))
    assert (False, True) == tuple(cluster.published(f"supervisor-{n}", digests["b-10"]) for n in (1, 10))
