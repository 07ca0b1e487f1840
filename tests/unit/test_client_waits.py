"""How long a client waits and for which masters: reads end within two seconds, frozen masters are
left, promised times are kept."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from scripted_masters import BUNDLE, ETL, Answer, Heard, Master, client, cluster, error, standby

from torrentdist.client import job_client
from torrentdist.client.masters.read_race import READ_SECS, NoAnswer, Passed, first_answer
from torrentdist.model.errors import TorrentdistError

pytestmark = pytest.mark.alone
SLACK_SECS = 0.4
"""Allowance for a machine that does other work."""


@pytest.fixture
def frozen() -> Iterator[list[str]]:
    """Masters that are stopped: the system accepts connections for them, and no process answers."""
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]
        yield [f"http://127.0.0.1:{server.getsockname()[1]}" for server in servers]


def behind(heard: Heard) -> Answer:
    """Answers like a master that is cut off from ZooKeeper: it shows old records to clients that
    ask for nothing newer."""
    if "x-zxid" in heard.headers:
        return error("not_ready", behind=True, fields={"detail": "behind"})
    return 200, BUNDLE, {"X-Zxid": "5", "X-Cluster": "c", "X-Stale": "7"}


@pytest.mark.case("G7")
def test_a_read_passes_over_any_number_of_frozen_masters(frozen: list[str]) -> None:
    """If this fails, each frozen master costs a read its whole patience."""

    async def test() -> float:
        alive = Master()
        async with cluster(alive), client(*frozen, alive.url) as ours:
            began = time.monotonic()
            assert ETL == (await ours.bundle(ETL)).id
            return time.monotonic() - began

    assert asyncio.run(test()) < READ_SECS


@pytest.mark.case("G7")
def test_a_read_without_an_answer_ends_in_time(frozen: list[str]) -> None:
    """If this fails, `job ls` hangs for a minute while the masters are frozen."""

    async def test() -> tuple[float, TorrentdistError]:
        async with client(*frozen) as ours:
            began = time.monotonic()
            with pytest.raises(TorrentdistError) as caught:
                await job_client.jobs(ours)
            return time.monotonic() - began, caught.value

    secs, error_ = asyncio.run(test())

    assert secs < READ_SECS + SLACK_SECS
    assert ("unreachable", 5) == (error_.code, error_.exit_code)
    assert all(url in error_.message for url in frozen)


@pytest.mark.case("G7")
def test_old_records_are_shown_and_marked_when_a_frozen_master_might_have_newer_ones(frozen: list[str]) -> None:
    """If this fails, a read waits for a master that will not answer, although another one has an
    answer."""

    async def test() -> tuple[float, Any]:
        one = Master(lambda heard: (200, BUNDLE, {"X-Zxid": "9", "X-Cluster": "c"}))
        async with cluster(one), client(one.url, *frozen) as ours:
            await ours.bundle(ETL)
            one.script = behind
            began = time.monotonic()
            assert ETL == (await ours.bundle(ETL)).id
            return time.monotonic() - began, ours.stale

    secs, stale = asyncio.run(test())

    assert secs < READ_SECS
    assert (7.0, True) == (stale.secs, stale.behind)


@pytest.mark.case("G7")
def test_what_the_leader_knows_is_had_from_others_when_it_is_frozen(frozen: list[str]) -> None:
    """If this fails, a read that the leader answers best is sent to a frozen leader until it is
    back."""

    async def test() -> tuple[float, list[str]]:
        other = Master()
        none: Any = []
        other.script = lambda heard: (200, none) if "any=true" in heard.path else standby(frozen[0])(heard)
        async with cluster(other), client(other.url, frozen[0]) as ours:
            began = time.monotonic()
            assert [] == await job_client.jobs(ours)
            return time.monotonic() - began, [heard.path for heard in other.heard]

    secs, paths = asyncio.run(test())

    assert secs < READ_SECS
    assert ("/v1/jobs?limit=1000", "/v1/jobs?limit=1000&any=true") == (paths[0], paths[-1])


@pytest.mark.case("G8")
def test_a_change_leaves_a_frozen_leader_and_is_made_once(frozen: list[str]) -> None:
    """If this fails, an upload hangs for half a minute at a frozen leader, or is made twice."""

    async def test() -> tuple[float, set[str]]:
        new = Master()
        new.script = lambda heard: standby(frozen[0])(heard) if len(new.heard) < 3 else (200, BUNDLE)
        async with cluster(new), client(frozen[0], new.url, deadline=20.0) as ours:
            began = time.monotonic()
            await ours.pin(ETL)
            return time.monotonic() - began, {heard.headers["x-request-id"] for heard in new.heard}

    secs, ids = asyncio.run(test())

    assert 3.0 <= secs < 5.5
    assert 1 == len(ids)


@pytest.mark.case("G8")
def test_a_long_poll_leaves_a_frozen_master(frozen: list[str]) -> None:
    """If this fails, an upload waits for news from a frozen standby."""

    async def test() -> float:
        alive = Master()
        async with cluster(alive), client(frozen[0], alive.url) as ours:
            began = time.monotonic()
            assert 1 <= (await ours.wait_replicas(ETL, 1, 60.0)).replicas
            return time.monotonic() - began

    assert asyncio.run(test()) < 4.0


@pytest.mark.case("G7")
@pytest.mark.parametrize("there", [True, False])
def test_the_time_that_is_promised_is_the_time_that_is_waited(there: bool) -> None:
    """If this fails, an upload without ZooKeeper gives up after seconds, although it promised a
    minute."""

    async def test() -> tuple[float, float, int]:
        told: list[tuple[float, str]] = []
        one = Master(lambda heard: error("not_ready", fields={"detail": "no ZooKeeper"}))
        await one.start()
        if not there:
            await one.stop()
        began = time.monotonic()
        tell = lambda why: told.append((time.monotonic() - began, why))  # noqa: E731
        async with client(one.url, deadline=7.0, on_wait=tell) as ours:
            with pytest.raises(TorrentdistError):
                await ours.ask_patiently("GET", "/v1/bundles/x", dict[str, object])
            ended = time.monotonic() - began
        if there:
            await one.stop()
        at, why = told[-1]
        found = re.match(r"for (\d+) s more at most", why)
        assert found is not None
        return ended, at + float(found[1]), len(told)

    ended, promised, times = asyncio.run(test())

    assert 1 == times
    assert abs(ended - promised) < 1.5
    assert abs(ended - (7.0 if there else 4.0)) < 1.5


def test_masters_that_refuse_at_once_are_asked_again_after_a_pause() -> None:
    """If this fails, each client whose masters cannot answer yet sends them thousands of requests
    per second."""
    asked: list[str] = []

    async def refuse(url: str, takes_old: bool, secs: float) -> None:
        asked.append(url)
        raise Passed("no leader")

    with pytest.raises(NoAnswer):
        asyncio.run(first_answer(lambda: ["m1", "m2"], refuse, 0.5))

    assert len(asked) < 20
