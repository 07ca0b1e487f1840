"""Whether a master says that it reaches ZooKeeper."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from torrentdist.cluster import paths
from torrentdist.cluster.session.znode_operations import SessionState
from torrentdist.master.reads.zookeeper_reachability import ZooKeeperReachability
from torrentdist.model.errors import TorrentdistError

pytestmark = pytest.mark.anyio
START = 100.0


class Session:
    """A session whose server answers, fails or hangs."""

    def __init__(self) -> None:
        self.state = SessionState.CONNECTED
        self.on_state: list[Callable[[SessionState], None]] = []
        self.asked: list[str] = []
        self.fails = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def exists(self, path: str) -> None:
        self.asked.append(path)
        await self.may_answer.wait()
        if self.fails:
            raise TorrentdistError("zookeeper_unavailable", detail="no answer")


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = START
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.session = Session()
        session: Any = self.session
        self.reach = ZooKeeperReachability(session)

    async def sees(self, within: float = 10.0) -> bool:
        return await self.reach.sees(within)


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


async def test_a_master_that_is_answered_has_reached_zookeeper_since_its_start(bench: Bench) -> None:
    """If this fails, the leader never believes that a supervisor is absent."""
    bench.now += 7
    sees = await bench.sees()

    assert (True, 7.0, [paths.CLUSTER]) == (sees, bench.reach.seen_for(), bench.session.asked)


async def test_the_time_starts_anew_after_each_failure(bench: Bench) -> None:
    """If this fails, the leader takes workers from supervisors right after its own connection
    broke."""
    bench.session.fails, bench.now = True, START + 5
    sees = await bench.sees()
    bench.session.fails, bench.now = False, START + 6

    assert (False, 1.0) == (sees, bench.reach.seen_for())
    assert (True, 1.0) == (await bench.sees(), bench.reach.seen_for())


@pytest.mark.parametrize("state", [SessionState.SUSPENDED, SessionState.LOST])
async def test_without_a_session_nothing_is_asked(bench: Bench, state: SessionState) -> None:
    """If this fails, workers are stopped late or never where no master reaches ZooKeeper."""
    bench.session.state, bench.now = state, START + 5
    sees = await bench.sees()

    assert (False, 0.0, []) == (sees, bench.reach.seen_for(), bench.session.asked)


async def test_a_change_of_the_session_starts_the_time_anew(bench: Bench) -> None:
    """If this fails, a gap between two sessions counts as time in which hosts were heard."""
    bench.now += 5
    for told in bench.session.on_state:
        told(SessionState.CONNECTED)
    bench.now += 2

    assert 2.0 == bench.reach.seen_for()


async def test_a_frozen_server_is_not_seen_and_is_asked_once(bench: Bench) -> None:
    """If this fails, an open connection to a frozen server counts as contact, or each host that
    asks costs ZooKeeper a question."""
    bench.session.may_answer.clear()
    bench.now += 5
    first = await asyncio.gather(*[bench.sees(0.0) for _ in range(3)])
    since = bench.reach.seen_for()
    bench.session.may_answer.set()
    again = await bench.sees()
    later = await bench.sees()

    assert ([False] * 3, 0.0, True, True) == (first, since, again, later)
    assert 2 == len(bench.session.asked)
