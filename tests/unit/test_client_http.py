"""The client against small servers that play masters by a script: which masters it asks, and how it
reads their answers."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from scripted_masters import BUNDLE, ETL, Master, client, cluster, error, standby

from torrentdist.model.errors import TorrentdistError


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


@contextmanager
def dead_url() -> Iterator[str]:
    """Returns a URL at which no process listens, and none can, since the port is taken."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.alone
def test_follows_the_leader_named_in_a_refusal_at_once() -> None:
    """B1: if this failed, every mutation sent to a standby would cost a wait."""

    async def test() -> None:
        one, leader = Master(), Master()
        async with cluster(one, leader):
            one.script = standby(leader.url)
            async with client(one.url, leader.url) as ours:
                await ours.pin(ETL)

            assert len(one.heard) == len(leader.heard) == 1
            assert leader.at[0] - one.at[0] < 0.5
            assert leader.heard[0].headers["x-request-id"] == one.heard[0].headers["x-request-id"]

    run(test())


def test_ignores_an_unknown_leader() -> None:
    """B1: if this failed, a wrong answer would send our token and our bundles to a stranger."""

    async def test() -> None:
        one, two, stranger = Master(), Master(), Master()
        async with cluster(one, two, stranger):
            one.script = standby(stranger.url, two.url)
            async with client(one.url) as ours:
                await ours.pin(ETL)

            assert stranger.heard == []
            assert len(two.heard) == 1

    run(test())


def test_asks_a_leader_that_is_not_ready_again_in_place() -> None:
    """B2: if this failed, a client would try all standbys while the new leader gets ready, or give
    up."""

    async def test() -> None:
        one, leader = Master(), Master()
        async with cluster(one, leader):
            one.script = standby(leader.url)
            leader.script = lambda heard: (
                error("not_ready", fields={"detail": "fetching"}) if len(leader.heard) < 5 else (200, BUNDLE)
            )
            async with client(one.url, leader.url) as ours:
                await ours.pin(ETL)
            gaps = [later - earlier for earlier, later in zip(leader.at, leader.at[1:], strict=False)]

            assert (len(one.heard), len(leader.heard)) == (1, 5)
            assert gaps[0] < gaps[-1]

    run(test())


def test_waits_once_per_round() -> None:
    """B3: if this failed, a cluster without a leader would be flooded."""

    async def test() -> None:
        one, two = Master(), Master()
        async with cluster(one, two):
            one.script = lambda heard: error("no_leader")
            two.script = lambda heard: error("no_leader") if len(two.heard) < 4 else (200, BUNDLE)
            async with client(one.url, two.url) as ours:
                await ours.pin(ETL)
            waits = [next_one - two_at for two_at, next_one in zip(two.at, one.at[1:], strict=False)]

            assert (len(one.heard), len(two.heard)) == (4, 4)
            assert waits[0] < waits[-1]

    run(test())


def test_all_masters_down_ends_with_a_clear_error() -> None:
    """B4: if this failed, a command without a cluster would hang, or not say what it tried."""

    async def test() -> None:
        async with client(one, two) as ours:
            with pytest.raises(TorrentdistError) as mutation:
                await ours.pin(ETL)
            with pytest.raises(TorrentdistError) as reading:
                await ours.cluster()

        for caught in (mutation.value, reading.value):
            assert (caught.code, caught.exit_code) == ("unreachable", 5)
            assert one in caught.message
            assert two in caught.message

    with dead_url() as one, dead_url() as two:
        run(test())


@pytest.mark.alone
def test_the_deadline_ends_a_search_among_living_masters() -> None:
    """B4: if this failed, a cluster that elects nobody would hold its clients for ever."""

    async def test() -> None:
        one = Master(script=lambda heard: error("no_leader"))
        async with cluster(one), client(one.url, deadline=1.0) as ours:
            begun = time.monotonic()
            with pytest.raises(TorrentdistError) as caught:
                await ours.pin(ETL)

        assert caught.value.code == "leader_not_found"
        assert time.monotonic() - begun < 3

    run(test())


def test_who_waits_is_told_once_for_what_and_how_long() -> None:
    """If this failed, a command would hang for a minute without a message while ZooKeeper is
    away."""

    async def test() -> None:
        one, told = Master(script=lambda heard: error("no_leader")), list[str]()
        async with cluster(one), client(one.url, deadline=1.0, on_wait=told.append, tell_secs=0.0) as ours:
            with pytest.raises(TorrentdistError):
                await ours.pin(ETL)

        assert len(told) == 1
        assert "no master leads right now" in told[0]

    run(test())


def test_learns_masters_and_keeps_them() -> None:
    """B5: if this failed, a client that is configured with one master could do nothing without
    it."""

    async def test() -> None:
        one, leader = Master(), Master()
        async with cluster(one, leader):
            one.script = standby(leader.url, one.url, leader.url)
            async with client(one.url) as ours:
                await ours.pin(ETL)
            await one.stop()
            async with client(one.url) as later:
                view = await later.bundle(ETL)

            assert view.id == ETL
            assert len(leader.heard) == 2

    run(test())


def test_a_master_without_a_leader_does_not_end_the_search() -> None:
    """B6: if this failed, a cut-off standby would fail commands that other masters can carry
    out."""

    async def test() -> None:
        one, two, leader = Master(), Master(), Master()
        async with cluster(one, two, leader):
            one.script = standby(None, one.url)
            two.script = lambda heard: error("zookeeper_unavailable", fields={"detail": "gone"})
            async with client(one.url, two.url, leader.url) as ours:
                view = await ours.pin(ETL)

            assert view.id == ETL

    run(test())


def test_one_request_id_over_all_retries() -> None:
    """B7: if this failed, a mutation whose answer was lost could be executed a second time."""

    async def test() -> None:
        one, two = Master(), Master()
        async with cluster(one, two):
            one.script = lambda heard: None
            async with client(one.url, two.url) as ours:
                await ours.pin(ETL)
                await ours.pin(ETL)
            sent = [heard.headers["x-request-id"] for heard in (*one.heard, *two.heard)]

            assert (len(sent), len(set(sent))) == (3, 2)

    run(test())


def test_a_lost_answer_is_told_from_a_request_that_never_left() -> None:
    """B7: if this failed, a user would believe that nothing happened when something may have."""

    async def test() -> None:
        one = Master(script=lambda heard: None)
        async with cluster(one), client(one.url, deadline=1.0) as ours:
            with pytest.raises(TorrentdistError) as caught:
                await ours.pin(ETL)

        assert caught.value.code == "outcome_unknown"

    run(test())


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_one_of_three_masters_down(dead: int) -> None:
    """B9: if this failed, the loss of one master would cost more than a delay."""

    async def test() -> None:
        masters = [Master(), Master(), Master()]
        async with cluster(*masters):
            leader = masters[(dead + 1) % 3]
            other = masters[(dead + 2) % 3]
            other.script = standby(leader.url)
            await masters[dead].stop()
            async with client(*(master.url for master in masters)) as ours:
                pinned = await ours.pin(ETL)
                read = await ours.bundle(ETL)

            assert ETL == pinned.id == read.id

    run(test())


def test_a_master_behind_our_own_write_is_passed_over() -> None:
    """B11: if this failed, a client could be told that its own change is not there."""

    async def test() -> None:
        behind, leader = Master(), Master()
        async with cluster(behind, leader):
            leader.script = lambda heard: (200, BUNDLE, {"X-Zxid": "4294967301"})
            behind.script = lambda heard: (
                error("not_ready", fields={"detail": "behind"}) if "x-zxid" in heard.headers else (200, BUNDLE)
            )
            async with client(leader.url, behind.url) as ours:
                await ours.pin(ETL)
                leader.script = lambda heard: None if len(leader.heard) < 3 else (200, BUNDLE)
                view = await ours.bundle(ETL)

            assert behind.heard[0].headers["x-zxid"] == "4294967301"
            assert view.id == ETL
            assert len(leader.heard) == 3

    run(test())


def test_an_error_of_the_table_arrives_as_it_is() -> None:
    """If this failed, a conflict or an unknown id would exit with another code than the master's,
    or be retried."""

    async def test() -> None:
        one, two = Master(), Master()
        one.script = lambda heard: error("conflict", fields={"id": "etl-1", "existing": "ff" * 32})
        async with cluster(one, two), client(one.url, two.url) as ours:
            with pytest.raises(TorrentdistError) as mutation:
                await ours.open_upload(ETL, b"raw", 2)
            one.script = lambda heard: error("bundle_not_found", fields={"id": "etl-1"})
            with pytest.raises(TorrentdistError) as reading:
                await ours.bundle(ETL)

        assert [(caught.code, caught.exit_code) for caught in (mutation.value, reading.value)] == [
            ("conflict", 9),
            ("bundle_not_found", 3),
        ]
        assert two.heard == []

    run(test())


def test_a_stranger_on_a_masters_port_is_passed_over() -> None:
    """If this failed, another service on a remembered port would end a command with a decoding
    error."""

    async def test() -> None:
        stranger, one = Master(script=lambda heard: (200, {"hello": "world"})), Master()
        async with cluster(stranger, one), client(stranger.url, one.url) as ours:
            pinned = await ours.pin(ETL)
            stranger.script = lambda heard: (404, {"detail": "Not Found"})
            read = await ours.bundle(ETL)

        assert ETL == pinned.id == read.id

    run(test())


def test_an_upload_that_is_opened_again_says_so() -> None:
    """If this failed, an upload that is under way would bring back a bundle that was removed."""

    async def test() -> None:
        one = Master()
        async with cluster(one), client(one.url) as ours:
            await ours.open_upload(ETL, b"raw", 2)
            await ours.open_upload(ETL, b"raw", 2, again=True)

        assert ["again=true" in heard.path for heard in one.heard] == [False, True]

    run(test())
