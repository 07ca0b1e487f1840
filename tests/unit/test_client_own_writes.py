"""A user who has seen a change sees it in every later command, or is told that this is impossible
(B11)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_masters import BUNDLE, ETL, Answer, Heard, Master, client, cluster, error

from torrentdist.client.masters.remembered_masters import recall_seen, remember_seen
from torrentdist.client.masters.seen_cluster import Stale


def shows(zxid: int, cluster: str = "c", **headers: str) -> Callable[[Heard], Answer]:
    return lambda heard: (200, BUNDLE, {"X-Zxid": str(zxid), "X-Cluster": cluster, **headers})


def behind(zxid: int, **headers: str) -> Callable[[Heard], Answer]:
    """Answers like a master that cannot catch up, and says so to a client that has seen more."""

    def script(heard: Heard) -> Answer:
        if int(heard.headers.get("x-zxid", "0")) > zxid:
            return error("not_ready", behind=True, fields={"detail": "behind"})
        return shows(zxid, **headers)(heard)

    return script


async def command(*masters: Master) -> Stale | None:
    """Runs a command as a process of its own, and returns its warning about the answer."""
    async with client(*(master.url for master in masters), deadline=5.0) as ours:
        await ours.bundle(ETL)
        return ours.stale


@pytest.mark.case("B11")
def test_the_next_command_passes_over_a_master_that_is_behind() -> None:
    """If this failed, `bundle show` after `upload` could say that nothing is there, because it is
    another process."""

    async def test() -> None:
        one, two = Master(shows(100)), Master(shows(100))
        async with cluster(one, two):
            await command(one, two)
            one.script = behind(99)
            said = await command(one, two)

        assert said is None
        assert [heard.headers.get("x-zxid") for heard in one.heard] == [None, "100"]
        assert two.heard[0].headers["x-cluster"] == "c"

    asyncio.run(test())


@pytest.mark.case("B11")
def test_what_was_seen_at_one_master_is_demanded_of_another_that_only_its_cluster_tells() -> None:
    """If this failed, a command with another --masters could miss the user's own change."""

    async def test() -> None:
        one, two = Master(shows(100)), Master(lambda heard: shows(100 if "x-zxid" in heard.headers else 90)(heard))
        async with cluster(one, two):
            await command(one)
            said = await command(two)

        assert said is None
        assert [heard.headers.get("x-zxid") for heard in two.heard] == [None, "100"]

    asyncio.run(test())


def test_when_nobody_can_show_it_what_there_is_is_shown_with_a_warning() -> None:
    """If this failed, reads would be refused while ZooKeeper is away, or old records would look
    new."""

    async def test() -> None:
        one, two = Master(shows(100)), Master(shows(100))
        async with cluster(one, two):
            await command(one, two)
            one.script, two.script = behind(98, **{"X-Stale": "7"}), behind(99, **{"X-Stale": "7"})
            old = await command(one, two)
            one.script = shows(100, **{"X-Stale": "8"})
            whole = await command(one, two)
            one.script = shows(100)
            fresh = await command(one, two)

        assert (Stale(7.0, True), Stale(8.0, False), None) == (old, whole, fresh)

    asyncio.run(test())


def test_a_cluster_that_counts_anew_is_believed() -> None:
    """If this failed, after a restore every read would wait for transactions that never come."""

    async def test() -> None:
        one = Master(shows(100))
        async with cluster(one):
            await command(one)
            one.script = shows(3)
            said = [await command(one), await command(one)]

        assert said == [None, None]
        assert [heard.headers.get("x-zxid") for heard in one.heard] == [None, "100", "3"]

    asyncio.run(test())


def test_another_cluster_at_the_same_address_is_asked_for_nothing_of_the_first() -> None:
    """If this failed, a cluster made anew at its old ports would be called behind."""

    async def test() -> None:
        one = Master(shows(100))
        async with cluster(one):
            await command(one)
            one.script = shows(3, cluster="d")
            await command(one)
            await command(one)

        assert [heard.headers.get("x-zxid") for heard in one.heard] == [None, "100", "3"]

    asyncio.run(test())


def test_of_two_commands_that_end_at_once_the_newer_word_counts(tmp_path: Path) -> None:
    """If this failed, a slow listing that ends after an upload would make the upload's transaction
    forgotten."""
    remember_seen(tmp_path, "c", 100, 0)
    remember_seen(tmp_path, "c", 90, 0)
    remember_seen(tmp_path, "d", 5, 0)
    kept = recall_seen(tmp_path)
    remember_seen(tmp_path, "c", 3, 100)

    assert kept == {"c": 100, "d": 5}
    assert recall_seen(tmp_path) == {"c": 3, "d": 5}
    assert recall_seen(tmp_path / "nothing") == {}
