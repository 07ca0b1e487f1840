"""What one command leaves in the user's cache for the next one."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
from scripted_masters import client

from torrentdist.client.masters.remembered_masters import (
    MAX_AGE_SECS,
    MAX_CLUSTERS,
    SEEN,
    Remembered,
    cache_dir,
    memory_path,
    recall,
    recall_seen,
    remember,
    remember_names,
    remember_seen,
)
from torrentdist.client.masters.seen_cluster import Seen, Stale
from torrentdist.model.wire.headers import CLUSTER, ZXID, AnswerAge

M1, M2 = "http://m1:1", "http://m2:1"


def test_masters_are_remembered_for_a_day(tmp_path: Path) -> None:
    """A command asks dead masters for ever, or looks for the leader each time."""
    path, known = tmp_path / "cache" / "masters", Remembered(masters=[M1, M2], leader=M2, cluster="c")
    remember(path, known)
    young = recall(path)
    then = time.time() - MAX_AGE_SECS
    os.utime(path, (then + 60, then + 60))
    nearly_a_day = recall(path)
    os.utime(path, (then - 60, then - 60))

    assert [known, known, Remembered()] == [young, nearly_a_day, recall(path)]
    assert (0o700, ["masters"]) == (stat.S_IMODE(path.parent.stat().st_mode), os.listdir(path.parent))


@pytest.mark.anyio
@pytest.mark.case("B5")
@pytest.mark.parametrize("told", [(), (M2,)])
async def test_masters_that_are_told_again_are_remembered_for_another_day(told: tuple[str, ...]) -> None:
    """If this fails, a user whose configured master is gone finds the others for a day, and then
    none, although each command has been told of them."""
    path, almost = memory_path([M1]), time.time() - MAX_AGE_SECS + 60
    remember(path, Remembered(masters=[M2], leader=M2, cluster="c"))
    os.utime(path, (almost, almost))
    async with client(M1) as masters:
        masters.learn(told)

    assert bool(told) is (path.stat().st_mtime > almost)
    assert [M2] == recall(path).masters


def test_only_urls_are_recalled(tmp_path: Path) -> None:
    """A damaged file sends a command to a server that no URL names."""
    path = tmp_path / "masters"
    remember(path, Remembered(masters=["m1", M1, f"{M1}/"]))

    assert Remembered(masters=[M1]) == recall(path)


def test_each_list_of_masters_has_a_memory_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user of two clusters sends a change to the wrong one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    paths = [memory_path(urls) for urls in ([M1, M2], [M2, M1], [M1], [])]

    assert paths[0] == paths[1]
    assert (3, {tmp_path / "torrentdist"}) == (len(set(paths)), {path.parent for path in paths})


@pytest.mark.parametrize("configured", ["", "relative"])
def test_a_cache_lies_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch, configured: str) -> None:
    """A command writes its files into the directory that it happens to be called in."""
    monkeypatch.setenv("XDG_CACHE_HOME", configured)
    monkeypatch.setenv("HOME", "/home/ann")

    assert Path("/home/ann/.cache/torrentdist") == cache_dir()


def test_names_are_kept_for_the_completion(tmp_path: Path) -> None:
    """The shell offers no ids, or half of the last one."""
    remember_names(tmp_path / "cache" / "names", ["a", "b"])

    assert b'["a","b"]' == (tmp_path / "cache" / "names").read_bytes()


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """The cache fills with files of commands that could not write theirs."""
    (tmp_path / "masters" / "in").mkdir(parents=True)
    remember(tmp_path / "masters", Remembered(masters=[M1]))

    assert ["masters"] == os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("zxid", "instead_of", "kept"),
    [(11, 10, 11), (10, 10, 10), (9, 10, 9), (9, 8, 10), (9, 11, 10), (11, 8, 11), (7, 8, 10)],
    ids=[
        "newer",
        "the same",
        "anew",
        "older",
        "older than another's",
        "newer than another's",
        "anew, and another newer",
    ],
)
def test_the_newest_transaction_is_kept(tmp_path: Path, zxid: int, instead_of: int, kept: int) -> None:
    """The next command does not see the user's last change, or demands what no master has."""
    remember_seen(tmp_path, "other", 5, 0)
    remember_seen(tmp_path, "c", 10, 0)
    remember_seen(tmp_path, "c", zxid, instead_of)

    assert {"other": 5, "c": kept} == recall_seen(tmp_path)


def test_the_cluster_that_was_used_last_is_kept(tmp_path: Path) -> None:
    """The file grows with every cluster of a test, or forgets the one in use."""
    for number in range(MAX_CLUSTERS):
        remember_seen(tmp_path, f"c{number}", 1, 0)
    remember_seen(tmp_path, "c0", 2, 1)
    remember_seen(tmp_path, "new", 1, 0)
    seen = recall_seen(tmp_path)

    assert (MAX_CLUSTERS, 2, 1) == (len(seen), seen["c0"], seen["new"])
    assert "c1" not in seen


def test_a_damaged_memory_demands_nothing(tmp_path: Path) -> None:
    """A command ends in a traceback because of a file of its cache."""
    (tmp_path / SEEN).write_bytes(b"\xff{")

    assert ({}, {}) == (recall_seen(tmp_path), Seen(tmp_path, "c").demand())


def shown(zxid: int | None, cluster: str | None = "c", stale: float | None = None) -> dict[str, str]:
    return AnswerAge(zxid=zxid, cluster=cluster, stale_secs=stale).to_headers()


def seen_at(tmp_path: Path, zxid: int, cluster: str = "c") -> Seen:
    seen = Seen(tmp_path, cluster)
    seen.hear({}, shown(zxid, cluster), answers=True)
    return seen


def test_a_read_demands_what_was_seen(tmp_path: Path) -> None:
    """A user does not see the bundle that the last command has uploaded."""
    nameless = Seen(tmp_path, "")
    nameless.hear({}, shown(7, None), answers=True)

    assert {ZXID: "9", CLUSTER: "c"} == seen_at(tmp_path, 9).demand()
    assert ({ZXID: "7"}, {}) == (nameless.demand(), Seen(tmp_path, "c").demand())


@pytest.mark.parametrize(
    ("headers", "demands", "answers", "is_sound", "zxid"),
    [
        (shown(10), True, True, True, 10),
        (shown(9), True, True, True, 9),
        (shown(8), False, True, False, 9),
        (shown(8), True, True, True, 8),
        (shown(8), False, False, True, 9),
        (shown(8, stale=3.0), False, True, True, 9),
        (shown(None), False, True, True, 9),
        (shown(3, "d"), False, True, True, 3),
    ],
    ids=[
        "newer",
        "as new",
        "older, and not asked for more",
        "older, although asked",
        "no records",
        "old records that say so",
        "no number",
        "another cluster",
    ],
)
def test_an_answer_teaches_what_is_new(
    tmp_path: Path, headers: dict[str, str], demands: bool, answers: bool, is_sound: bool, zxid: int
) -> None:
    """A user sees records from before the last change, or never any after ZooKeeper was set up
    anew."""
    seen = seen_at(tmp_path, 9)
    heard = seen.hear(seen.demand() if demands else {}, headers, answers=answers)

    assert (is_sound, zxid) == (heard, seen.zxid)


@pytest.mark.parametrize(
    ("zxid", "stale", "takes_old", "expected"),
    [
        (9, None, True, None),
        (8, None, True, Stale(None, behind=True)),
        (8, None, False, None),
        (9, 3.0, True, Stale(3.0, behind=False)),
        (8, 3.0, True, Stale(3.0, behind=True)),
        (8, 0.0, False, Stale(0.0, behind=False)),
        (None, None, True, Stale(None, behind=True)),
    ],
)
def test_an_old_answer_is_marked(
    tmp_path: Path, zxid: int | None, stale: float | None, takes_old: bool, expected: Stale | None
) -> None:
    """A user takes old records for new ones."""
    assert expected == seen_at(tmp_path, 9).warning(shown(zxid, stale=stale), takes_old=takes_old)


def test_a_warning_says_how_old_records_are() -> None:
    """A user does not learn whether an answer is a second old or a day."""
    told = [Stale(3.4, behind=True).sentence(), Stale(None, behind=False).sentence()]

    assert [
        "the records behind this are 3 s old: ZooKeeper is away, and may lack what you did last",
        "the records behind this may be old: ZooKeeper is away",
    ] == told


def test_what_was_seen_is_kept_by_cluster(tmp_path: Path) -> None:
    """The next command demands of one cluster what another has shown."""
    remember_seen(tmp_path, "c", 9, 0)
    seen = Seen(tmp_path, "")
    seen.hear({}, shown(4, None), answers=True)
    seen.hear({}, shown(12, "d"), answers=True)
    seen.keep()

    assert {"c": 9, "d": 12} == recall_seen(tmp_path)


def test_what_was_only_recalled_is_not_written(tmp_path: Path) -> None:
    """A command that saw nothing brings back the count of a ZooKeeper that was set up anew."""
    remember_seen(tmp_path, "c", 9, 0)
    seen = Seen(tmp_path, "c")
    remember_seen(tmp_path, "c", 3, 9)
    seen.keep()

    assert {"c": 3} == recall_seen(tmp_path)
