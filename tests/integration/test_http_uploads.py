"""Uploads over HTTP that end otherwise than in order: removed, damaged, or under another leader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from chunked_uploads import Chunked
from cluster_fixtures import Cluster, make_source, picture, running_cluster, until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(work=tmp_path_factory.mktemp("over-http"), masters=2, supervisors=0) as running:
        yield running


def held_everywhere(cluster: Cluster, bundle: str) -> None:
    until(lambda: 2 == len(cluster.holders(bundle, at="master-1")), "both masters hold it")


def damage(cluster: Cluster, name: str, bundle: str, digest: str) -> None:
    """Damages a file at a master, which notices it because somebody asks for the file."""
    damaged = cluster.content(name, digest) / "data.bin"
    damaged.chmod(0o644)
    damaged.write_bytes(b"damaged")
    cluster.status(name, f"/v1/bundles/{bundle}/files/data.bin")


def test_who_may_not_upload_a_bundle_may_not_ask_for_its_offset(cluster: Cluster, tmp_path: Path) -> None:
    """The question ends the leader's fetch, so anybody who reads could end every upload."""
    upload = Chunked(cluster, make_source(tmp_path / "source", 1))
    upload.open("etl-1")
    makers = (("reader",), ("uploader", "--bundles", "web-*"), ("uploader", "--bundles", "etl-*"))
    made = [cluster.run("token", "create", f"t{n}", "--role", *maker).ok() for n, maker in enumerate(makers)]
    refusals = [upload.refusal(Authorization=f"Bearer {one['token']}") for one in made]

    assert [(403, "role_needed"), (403, "pattern_mismatch"), (200, "")] == refusals


def test_another_upload_of_the_same_content_disturbs_none(cluster: Cluster, tmp_path: Path) -> None:
    """A stranger who knows a bundle's metafile could open it under another id, set the upload back
    to its beginning, put bytes into it, and be named as its bundle."""
    source = make_source(tmp_path / "source", 8, 900_000)
    token = cluster.run("token", "create", "mallory", "--role", "uploader", "--bundles", "a-*").ok()["token"]
    upload = Chunked(cluster, source)
    upload.open("victim")
    upload.put(upload.offset(), 500_000)
    with httpx.Client(trust_env=False, timeout=60.0, headers={"Authorization": f"Bearer {token}"}) as http:
        attacker = Chunked(cluster, source, http)
        found = attacker.open("a-1"), attacker.refusal(), attacker.finished_id()
    offset = upload.offset()
    upload.put(offset, len(upload.data))

    assert (428, (403, "pattern_mismatch"), "pattern_mismatch") == found
    assert 500_000 == offset
    assert "victim" == upload.finished_id()
    held_everywhere(cluster, "victim")


def test_a_bundle_that_masters_hold_takes_no_bytes(cluster: Cluster, tmp_path: Path) -> None:
    """One request would delete the rest of a damaged copy, and keep the leader from repairing
    it."""
    source = make_source(tmp_path / "source", 2, 900_000)
    upload = Chunked(cluster, source)
    digest = cluster.upload(source, "held", replicas=2)["digest"]
    leader = cluster.leader()
    damage(cluster, leader, "held", digest)
    refused = upload.refusal()
    until(lambda: cluster.published(leader, digest), "it is repaired from the other master")

    assert (404, "not_found") == refused
    assert picture(source) == picture(cluster.content(leader, digest))


def test_a_removed_bundle_is_sent_again_from_its_beginning(cluster: Cluster, tmp_path: Path) -> None:
    """The leader would go on at an offset whose bytes were deleted, and refuse the bundle as
    corrupt."""
    upload = Chunked(cluster, make_source(tmp_path / "source", 3, 900_000))
    upload.open("sent-twice")
    upload.offset()
    upload.put(0, 500_000)
    cluster.run("bundle", "rm", "sent-twice").ok()
    objects = cluster.store(cluster.leader()) / "objects"
    until(lambda: not (objects / upload.meta.digest).exists(), "the leader drops it")
    upload.open("sent-twice")
    offset = upload.offset()
    upload.put(offset, len(upload.data))

    assert 0 == offset
    assert (200, "") == upload.finish()
    held_everywhere(cluster, "sent-twice")


def test_a_removal_ends_an_upload_that_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    """An upload that gets no further opens again every few seconds. It would bring back a bundle
    that somebody has removed, with no copy of it."""
    upload = Chunked(cluster, make_source(tmp_path / "source", 3, 1000))
    before = upload.open("ended"), upload.open("ended", again="true")
    cluster.run("bundle", "rm", "ended").ok()
    after = upload.open("ended", again="true"), upload.open("ended")

    assert (200, 200) == before
    assert (404, 200) == after


def test_a_former_leader_gets_the_bundle_too(cluster: Cluster, tmp_path: Path) -> None:
    """A master that led while an upload began would never hold that bundle until its restart."""
    source = make_source(tmp_path / "source", 4, 900_000)
    upload = Chunked(cluster, source)
    upload.open("moved")
    upload.offset()
    upload.put(0, 500_000)
    cluster.run("ha", "transfer", cluster.standbys()[0]).ok()
    upload.turn_to_leader()
    upload.open("moved")
    offset = upload.offset()
    upload.put(offset, len(upload.data))

    assert (200, "") == upload.finish()
    held_everywhere(cluster, "moved")


def test_the_last_copy_is_repaired_over_http(cluster: Cluster, tmp_path: Path) -> None:
    """A damaged bundle without another holder would be lost to an uploader that nobody can dial, or
    its good files would be deleted before the new ones are here."""
    source = make_source(tmp_path / "source", 5, 900_000)
    upload = Chunked(cluster, source)
    cluster.upload(source, "last-copy", replicas=2)
    others = [file for file in upload.meta.files if file.path != "data.bin"]
    for name in [*cluster.standbys(), cluster.leader()]:
        damage(cluster, name, "last-copy", upload.meta.digest)
    until(lambda: not cluster.holders("last-copy", at=cluster.leader()), "nobody holds it")
    offset = upload.offset()
    content = cluster.store(cluster.leader()) / "objects" / upload.meta.digest / "content"
    kept = [(content / file.path).stat().st_size == file.size for file in others]
    upload.put(offset, len(upload.data))

    assert all(kept)
    assert (200, "") == upload.finish()
    held_everywhere(cluster, "last-copy")
