"""A bundle with many small files, from end to end: every door gives it back as it was."""

from __future__ import annotations

import io
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import fsspec
import pytest
from chunked_uploads import Chunked
from cluster_fixtures import Cluster, picture, running_cluster, until

from torrentdist.bundle.metafile import parse_metafile
from torrentdist.model.wire.headers import UPDATE_TYPE
from torrentdist.testing.sample_trees import ODD_NAMES, some_bytes, write_tree


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(work=tmp_path_factory.mktemp("packs"), masters=2, supervisors=1) as running:
        yield running


def make_tree(top: Path, seed: int) -> Path:
    files = {f"d{number % 7}/f{number:03}": some_bytes(500 + 9 * number, seed + number) for number in range(400)}
    write_tree(top, {**files, **ODD_NAMES, "empty": b"", "large.bin": some_bytes(300_000, seed)})
    (top / "d1/f001").chmod(0o755)
    (top / "void").mkdir()
    (top / "link").symlink_to("d1/f001")
    return top


def host_content(cluster: Cluster, digest: str) -> Path:
    return cluster.content(cluster.supervisors()[0], digest)


@pytest.mark.case("N1")
def test_every_door_gives_back_the_tree(cluster: Cluster, tmp_path: Path) -> None:
    """A name, a mode, a link or an empty directory would be lost on the way through packs."""
    source = make_tree(tmp_path / "source", 1)
    digest = cluster.upload(source, "many", replicas=2)["digest"]
    cluster.run("bundle", "distribute", "many").ok()
    cluster.run("download", "many", tmp_path / "by-host").ok()
    cluster.run("download", "many", tmp_path / "by-peer", "--no-supervisor").ok()
    copies = [cluster.content(name, digest) for name in (*cluster.masters(), *cluster.supervisors())]

    assert (copies[0].parent / "packs/00000").is_file()
    assert [picture(source)] * 5 == [picture(copy) for copy in (*copies, tmp_path / "by-host", tmp_path / "by-peer")]


@pytest.mark.case("H1")
def test_a_new_version_takes_its_unchanged_files_from_the_old_one(cluster: Cluster, tmp_path: Path) -> None:
    """A patched environment would cross the network as a whole."""
    source = make_tree(tmp_path / "source", 2000)
    cluster.upload(source, "env-1", replicas=2)
    cluster.run("bundle", "distribute", "env-1").ok()
    (source / "d3/f003").write_bytes(b"patched")
    (source / "d5").rename(source / "d9")
    uploaded = cluster.upload(source, "env-2", replicas=2)
    told = cluster.run("bundle", "distribute", "env-2").ok()

    assert 7 == uploaded["new_bytes"]
    assert told["sources"]["masters"] + told["sources"]["peers"] < 0.2 * uploaded["size"]
    assert picture(source) == picture(host_content(cluster, uploaded["digest"]))


@pytest.mark.case("H1")
def test_scattered_changes_cost_a_host_what_changed(cluster: Cluster, tmp_path: Path) -> None:
    """A host would fetch a whole piece for each small file that changed."""
    source = make_tree(tmp_path / "source", 7000)
    cluster.upload(source, "scattered-1", replicas=2)
    cluster.run("bundle", "distribute", "scattered-1").ok()
    changed = [source / f"d{number % 7}/f{number:03}" for number in range(0, 400, 50)]
    for number, path in enumerate(changed):
        path.write_bytes(some_bytes(600, 8000 + number))
    uploaded = cluster.upload(source, "scattered-2", replicas=2)
    told = cluster.run("bundle", "distribute", "scattered-2").ok()

    assert 600 * len(changed) == told["sources"]["masters"] + told["sources"]["peers"]
    assert picture(source) == picture(host_content(cluster, uploaded["digest"]))


def test_an_update_begins_only_with_what_its_reader_may_read(cluster: Cluster, tmp_path: Path) -> None:
    """A reader would learn what a bundle that is hidden from it has in common with its own."""
    source = make_tree(tmp_path / "source", 9000)
    hidden = cluster.upload(source, "hidden-1", replicas=2)["digest"]
    (source / "d3/f003").write_bytes(b"patched")
    cluster.upload(source, "shown-1", replicas=2)
    token = cluster.run("token", "create", "narrow", "--role", "reader", "--bundles", "shown-*").ok()["token"]
    url = f"{cluster.url(cluster.leader())}/v1/bundles/shown-1/metafile?have={hidden}"
    kinds = [
        cluster.http.get(url, headers=headers).headers["content-type"]
        for headers in ({}, {"Authorization": f"Bearer {token}"})
    ]

    assert [UPDATE_TYPE, "application/x-bittorrent"] == kinds


def test_a_small_bundle_needs_no_swarm(cluster: Cluster, tmp_path: Path) -> None:
    """A few KiB would wait until a swarm has formed."""
    write_tree(tmp_path / "source", {"etc/app.conf": b"x = 1\n", "bin/run": b"#!/bin/sh\n"})
    (tmp_path / "source/bin/run").chmod(0o755)
    uploaded = cluster.upload(tmp_path / "source", "small", replicas=2)
    told = cluster.run("bundle", "distribute", "small").ok()

    assert told["hosts"] * uploaded["size"] == told["sources"]["masters"]
    assert picture(tmp_path / "source") == picture(host_content(cluster, uploaded["digest"]))


@pytest.mark.case("E5")
def test_a_damaged_pack_is_found_and_fetched_again(cluster: Cluster, tmp_path: Path) -> None:
    """A host would send wrong pieces for ever, or lose the bundle."""
    source = make_tree(tmp_path / "source", 3000)
    digest = cluster.upload(source, "spoiled", replicas=2)["digest"]
    cluster.run("bundle", "distribute", "spoiled").ok()
    pack = host_content(cluster, digest).parent / "packs/00000"
    good = pack.read_bytes()
    pack.write_bytes(bytes(len(good)))
    cluster.run("download", "spoiled", tmp_path / "copy").ok()
    until(lambda: good == pack.read_bytes(), "the pack is fetched again")

    assert picture(source) == picture(tmp_path / "copy")


def test_a_bundle_with_packs_is_sent_over_http(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody behind a firewall could upload an environment."""
    source = make_tree(tmp_path / "source", 4000)
    upload = Chunked(cluster, source)
    upload.open("sent")
    upload.put_all()
    status = upload.finish()[0]
    leader = cluster.leader()

    assert 200 == status
    assert picture(source) == picture(cluster.content(leader, upload.meta.digest))


@pytest.mark.case("N3")
def test_a_bundle_that_was_uploaded_without_packs_keeps_its_form(cluster: Cluster, tmp_path: Path) -> None:
    """After an upgrade, the same directory would conflict with its own bundle."""
    source = make_tree(tmp_path / "source", 5000)
    plain = Chunked(cluster, source, packed=False)
    plain.open("before")
    plain.put_all()

    assert (200, "") == plain.finish()
    assert plain.meta.digest == cluster.upload(source, "before", replicas=2)["digest"]


@pytest.mark.case("N1")
def test_every_door_of_the_gateway_gives_back_the_tree(cluster: Cluster, tmp_path: Path) -> None:
    """A job would read other files than were uploaded, depending on the door that it uses. It takes
    long: two doors hand out each file on its own."""
    source = make_tree(tmp_path / "source", 6000)
    digest = cluster.upload(source, "doors", replicas=2)["digest"]
    gateway = cluster.url(cluster.supervisors()[0])
    for kind in ("tar", "tar.gz"):
        data = cluster.http.get(f"{gateway}/bundles/doors/archive.{kind}", timeout=60).content
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(tmp_path / kind, filter="fully_trusted")
    zipped = zipfile.ZipFile(io.BytesIO(cluster.http.get(f"{gateway}/bundles/doors/archive.zip", timeout=60).content))
    wanted = picture(source)
    files = {path: data for path, (kind, data, _) in wanted.items() if kind == "file"}
    some = {path: data for n, (path, data) in enumerate(files.items()) if n % 4 == 0 or not path.startswith("d")}
    single = {path: cluster.http.get(f"{gateway}/bundles/doors/files/{quote(path)}").content for path in some}
    held = fsspec.filesystem("torrentdist", supervisor=gateway, config_file=str(cluster.dir / "client.toml"))
    home = cluster.content(cluster.masters()[0], digest).parent
    cluster.run("unpack", home / "metafile", fetched(home, tmp_path / "stock"), tmp_path / "unpacked").ok()

    assert [wanted] * 3 == [picture(tmp_path / name) for name in ("tar", "tar.gz", "unpacked")]
    assert files == {path: zipped.read(path) for path in files}
    assert some == single
    assert some == {path: held.cat_file(f"doors/{path}") for path in some}


def fetched(home: Path, top: Path) -> Path:
    """Lays out what a stock BitTorrent client has of a bundle."""
    for file in parse_metafile((home / "metafile").read_bytes()).wire_files:
        target = top / (file.place if file.is_pack else f"files/{file.path}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(home / file.place, target)
    return top
