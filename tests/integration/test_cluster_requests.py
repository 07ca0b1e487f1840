"""Answers of a healthy cluster: repeated uploads, conflicts, pins, names, destinations."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from chunked_uploads import Chunked
from cluster_fixtures import Cluster, Ran, make_source, part_bytes, picture, until
from patience import patient

from torrentdist.bundle.metafile_maker import make_metafile


def code_of(ran: Ran) -> tuple[int, str]:
    """Returns the exit code, and the error that was printed."""
    found = re.findall(r"error\[(\w+)\]", ran.stderr)
    return ran.code, found[0] if found else ""


def test_the_same_content_again_moves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Without this, every retry of an upload would send everything again."""
    source = make_source(tmp_path / "source", 100)
    first = cluster.upload(source, "again")
    before = cluster.get(cluster.leader(), "/v1/bundles/again")

    second = cluster.upload(make_source(tmp_path / "elsewhere" / "copy", 100), "again")

    assert first["digest"] == second["digest"]
    assert (True, 3) == (second["achieved"], second["replicas"])
    assert before == cluster.get(cluster.leader(), "/v1/bundles/again")


def test_other_content_under_the_id_is_a_conflict(cluster: Cluster, tmp_path: Path) -> None:
    """Without this, an id would not say which code runs."""
    cluster.upload(make_source(tmp_path / "one", 110), "taken")
    before = cluster.get("master-1", "/v1/bundles/taken")

    refused = cluster.run("upload", make_source(tmp_path / "other", 111), "--id", "taken")

    assert (9, "conflict") == code_of(refused)
    assert before == cluster.get("master-1", "/v1/bundles/taken")


def test_a_conflict_leaves_nothing_on_any_disk(cluster: Cluster, tmp_path: Path) -> None:
    """Without this, refused uploads would fill the masters' disks."""
    cluster.upload(make_source(tmp_path / "one", 112), "taken-2")
    meta = make_metafile(make_source(tmp_path / "other", 113))

    answer = cluster.http.post(f"{cluster.url(cluster.leader())}/v1/bundles/taken-2", content=meta.raw)

    assert (409, "conflict") == (answer.status_code, answer.json()["error"])
    assert [] == [name for name in cluster.masters() if (cluster.store(name) / "objects" / meta.digest).exists()]


@pytest.mark.parametrize(
    "command",
    [
        ("download", "nothing-here", "dest"),
        ("download", "nothing-here", "dest", "--no-supervisor"),
        ("bundle", "show", "nothing-here"),
        ("bundle", "rm", "nothing-here"),
        ("bundle", "pin", "nothing-here"),
        ("bundle", "distribute", "nothing-here"),
    ],
    ids=lambda command: "-".join(command[:2] + command[3:]),
)
def test_an_unknown_id_is_not_found(cluster: Cluster, tmp_path: Path, command: tuple[str, ...]) -> None:
    """Without this, a mistyped name would look like an outage, or like a success."""
    args = [str(tmp_path / part) if part == "dest" else part for part in command]

    ran = cluster.run(*args)

    assert (3, "bundle_not_found") == code_of(ran)
    assert not (tmp_path / "dest").exists()
    assert ran.seconds < patient(10)


def test_fewer_replicas_than_wanted(cluster: Cluster, tmp_path: Path) -> None:
    """Without this, an upload with too few copies would look complete, or be thrown away."""
    ran = cluster.run(
        "upload", make_source(tmp_path / "source", 120), "--id", "four-wanted", "--min-replicas", 4, "--timeout", "2s"
    )

    assert (10, "partly") == code_of(ran)
    assert "3 of 4 replicas" in ran.stderr
    assert (3, 4, False) == (ran.json["replicas"], ran.json["min_replicas"], ran.json["achieved"])
    assert "available" == cluster.get("master-1", "/v1/bundles/four-wanted")["state"]


def test_a_pinned_bundle_is_not_removed(cluster: Cluster, tmp_path: Path) -> None:
    """A28: without this, a bundle that a user protected would be gone."""
    digest = cluster.upload(make_source(tmp_path / "source", 130), "pinned")["digest"]
    cluster.run("bundle", "pin", "pinned").ok()

    refused = cluster.run("bundle", "rm", "pinned")
    held = [cluster.published(name, digest) for name in cluster.masters()]
    cluster.run("bundle", "unpin", "pinned").ok()
    removed = cluster.run("bundle", "rm", "pinned").ok()

    assert (9, "in_use") == code_of(refused)
    assert "pinned" in refused.stderr
    assert [True, True, True] == held
    assert "removed" == removed["state"]
    until(lambda: not any(cluster.published(name, digest) for name in cluster.masters()), "every master drops it")


def test_a_removed_id_is_free_for_the_same_content_only(cluster: Cluster, tmp_path: Path) -> None:
    """A28: without this, an id would come to mean other code after a removal, or a removal could
    never be undone.
    """
    source = make_source(tmp_path / "source", 140)
    digest = cluster.upload(source, "revived")["digest"]
    cluster.run("bundle", "distribute", "revived", "--wait", "100%").ok()
    everybody = [*cluster.masters(), *cluster.supervisors()]
    cluster.run("bundle", "rm", "revived").ok()
    until(lambda: not any(cluster.published(name, digest) for name in everybody), "every host drops it")
    listed = [view["id"] for view in cluster.run("bundle", "ls").ok()]

    gone = cluster.run("download", "revived", tmp_path / "gone")
    other = cluster.run("upload", make_source(tmp_path / "other", 141), "--id", "revived")
    same = cluster.upload(source, "revived")
    cluster.run("download", "revived", tmp_path / "dest", "--no-supervisor").ok()
    fleet = cluster.run("bundle", "distribute", "revived", "--wait", "100%", "--timeout", "20s")

    assert "revived" not in listed
    assert (3, "bundle_not_found") == code_of(gone)
    assert (9, "conflict") == code_of(other)
    assert (digest, 3) == (same["digest"], same["replicas"])
    assert picture(source) == picture(tmp_path / "dest")
    assert (0, 2) == (fleet.code, fleet.json["done"])


def test_two_names_of_one_content_live_apart(cluster: Cluster, tmp_path: Path) -> None:
    """Without this, removing one name would remove the content of the other one too."""
    source = make_source(tmp_path / "source", 150)
    digest = cluster.upload(source, "twin-a")["digest"]
    assert digest == cluster.upload(source, "twin-b")["digest"]

    cluster.run("bundle", "rm", "twin-a").ok()
    cluster.run("download", "twin-b", tmp_path / "dest", "--no-supervisor").ok()

    assert picture(source) == picture(tmp_path / "dest")
    assert [True, True, True] == [cluster.published(name, digest) for name in cluster.masters()]
    assert 3 == len(cluster.holders("twin-b", at="master-1"))


def test_a_destination_with_other_content_is_refused_without_force(cluster: Cluster, tmp_path: Path) -> None:
    """Without this, a download would destroy a user's files, or --force would do nothing."""
    source = make_source(tmp_path / "source", 160)
    cluster.upload(source, "into-dest")
    dest = tmp_path / "dest"
    dest.mkdir()
    (dest / "mine").write_text("keep me")

    for flags in ((), ("--no-supervisor",)):
        refused = cluster.run("download", "into-dest", dest, *flags)

        assert (9, "dest_exists") == code_of(refused)
        assert {"mine"} == {path.name for path in dest.iterdir()}
    cluster.run("download", "into-dest", dest, "--no-supervisor", "--force").ok()
    again = cluster.run("download", "into-dest", dest).ok()

    assert picture(source) == picture(dest)
    nothing = {"masters": 0, "peers": 0, "plugin": 0, "outside": 0}
    assert {**nothing, "local": again["size"]} == again["sources"]


def test_a_download_that_was_killed_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    """Without this, a download of hours would start again from nothing after a crash."""
    source = make_source(tmp_path / "source", 170, 6_000_000)
    cluster.upload(source, "resumed")
    dest = tmp_path / "dest"
    slow = cluster.begin("download", "resumed", dest, "--no-supervisor", swarm__download_limit=2_000_000)
    until(lambda: part_bytes(tmp_path) > 3_000_000, "something has arrived")
    slow.kill()
    assert not dest.exists()

    rest = cluster.run("download", "resumed", dest, "--no-supervisor").ok()

    assert picture(source) == picture(dest)
    assert rest["sources"]["masters"] + rest["sources"]["peers"] <= rest["size"] - 2_000_000
    assert {"source", "dest"} == {path.name for path in tmp_path.iterdir()}


def test_a_download_that_cannot_be_done_in_time_says_so(cluster: Cluster, tmp_path: Path) -> None:
    """A25: without this, a download that is not complete would be a success, or would never end."""
    source = make_source(tmp_path / "source", 180, 6_000_000)
    cluster.upload(source, "too-slow")

    ran = cluster.run(
        "download", "too-slow", tmp_path / "dest", "--no-supervisor", "--timeout", "1s", swarm__download_limit=500_000
    )

    assert (6, "timed_out") == code_of(ran)
    assert not (tmp_path / "dest").exists()
    assert ran.seconds < patient(15)  # it was given 1, and starts and ends on a busy machine


def test_standbys_fetch_because_of_the_watch(cluster: Cluster, tmp_path: Path) -> None:
    """A26: without this, a bundle would reach the standbys only with the next periodic sync, which
    is a day away here."""
    one = cluster.upload(make_source(tmp_path / "source", 190), "by-the-watch", replicas=1)
    until(lambda: 3 == len(cluster.holders("by-the-watch", at="master-1")), "three holders", 10)

    assert all(cluster.published(name, one["digest"]) for name in cluster.masters())


def test_a_standby_refuses_a_mutation_and_names_the_leader(cluster: Cluster, tmp_path: Path) -> None:
    """A1: without this, two masters would change the records, or a client could not find the
    leader."""
    meta = make_metafile(make_source(tmp_path / "source", 200))
    leader, standby = cluster.leader(), cluster.standbys()[0]

    answer = cluster.http.post(f"{cluster.url(standby)}/v1/bundles/refused-here", content=meta.raw)

    assert (421, "not_leader", cluster.url(leader)) == (
        answer.status_code,
        answer.json()["error"],
        answer.json()["leader"],
    )
    assert sorted(cluster.url(name) for name in cluster.masters()) == sorted(answer.json()["masters"])
    assert not (cluster.store(standby) / "objects" / meta.digest).exists()


def test_an_upload_in_chunks(cluster: Cluster, tmp_path: Path) -> None:
    """Without this, a client without libtorrent could not upload, or would begin again after every
    broken connection."""
    source = make_source(tmp_path / "source", 210, 900_000)
    upload = Chunked(cluster, source)
    third = len(upload.data) // 3

    assert 200 == upload.open("in-chunks")
    assert 0 == upload.offset()
    assert (200, third) == upload.put(0, third)
    assert (400, third) == upload.put(third + 10, 2 * third)
    assert (400, third) == upload.put(0, third)
    assert (400, "invalid_request") == upload.finish()
    assert third == upload.offset()
    assert (200, len(upload.data)) == upload.put(third, len(upload.data))
    assert (200, "") == upload.finish()
    until(lambda: 3 == len(cluster.holders("in-chunks", at="master-1")), "every master holds it")
    cluster.run("download", "in-chunks", tmp_path / "dest").ok()
    assert picture(source) == picture(tmp_path / "dest")


def test_chunks_of_files_that_the_leader_has_are_not_asked_for(cluster: Cluster, tmp_path: Path) -> None:
    """A client that no master can dial would send a whole environment for one changed file. One
    that knows nothing of this sends everything, and that works too."""
    source = make_source(tmp_path / "source", 211, 900_000)
    cluster.run("upload", source, "--id", "known-before").ok()
    until(lambda: 3 == len(cluster.holders("known-before", at="master-1")), "every master holds it")
    new = {"aa-first": os.urandom(90_000), "zz-last": os.urandom(70_000)}
    for name, content in new.items():
        (source / name).write_bytes(content)
    upload = Chunked(cluster, source)
    assert 200 == upload.open("known-now")
    sent, offset = 0, upload.offset()
    while offset < len(upload.data):
        end = upload.until()
        sent += end - offset
        status, offset = upload.put(offset, end)
        assert status == 200
    assert (200, "") == upload.finish()
    (source / "zz-last").write_bytes(new["zz-last"][::-1])
    simple = Chunked(cluster, source)
    assert 200 == simple.open("known-later")
    start = simple.offset()
    assert (200, len(simple.data)) == simple.put(start, len(simple.data))
    assert (200, "") == simple.finish()
    cluster.run("download", "known-later", tmp_path / "dest").ok()

    assert 160_000 <= sent < 160_000 + 2 * 16 * 1024
    assert picture(source) == picture(tmp_path / "dest")


def test_chunks_that_do_not_match_are_never_published(cluster: Cluster, tmp_path: Path) -> None:
    """Without this, wrong bytes from an uploader would be handed out as the bundle."""
    upload = Chunked(cluster, make_source(tmp_path / "source", 220))
    upload.open("wrong-chunks")
    good = upload.data
    upload.data = good[:1000] + bytes(b ^ 1 for b in good[1000:1001]) + good[1001:]
    upload.offset()
    upload.put(0, len(good))

    refused = upload.finish()
    listed = [cluster.published(name, upload.meta.digest) for name in cluster.masters()]
    upload.data = good
    upload.offset()
    upload.put(0, len(good))

    assert (500, "corrupt") == refused
    assert [False, False, False] == listed
    assert (200, "") == upload.finish()


def test_an_unfinished_upload_is_nowhere_to_be_seen(cluster: Cluster, tmp_path: Path) -> None:
    """A20: without this, a job could be started with a bundle that has not arrived."""
    upload = Chunked(cluster, make_source(tmp_path / "source", 230))
    upload.open("unfinished")
    upload.offset()
    upload.put(0, 1000)

    listed = [view["id"] for view in cluster.run("bundle", "ls").ok()]
    for command in (("bundle", "show", "unfinished"), ("download", "unfinished", tmp_path / "dest")):
        assert (3, "bundle_not_found") == code_of(cluster.run(*command))

    assert "unfinished" not in listed
    assert not (tmp_path / "dest").exists()


def test_a_download_ends_when_its_bundle_is_removed(cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, it waits for ever for bytes that nobody has any more."""
    cluster.upload(make_source(tmp_path / "source", 570, 6 << 20), "soon-gone")
    downloading = cluster.begin(
        "download", "soon-gone", tmp_path / "dest", "--no-supervisor", swarm__download_limit=2 << 20
    )
    until(lambda: part_bytes(tmp_path) > 1 << 20, "something has arrived")
    cluster.run("bundle", "rm", "soon-gone").ok()

    assert (3, "bundle_not_found") == code_of(downloading.end())
    assert not (tmp_path / "dest").exists()
