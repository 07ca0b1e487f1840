"""Whether a master reaches ZooKeeper. Isolated hosts rely on its answer, and so does a leader that
moves workers."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import pytest
from zookeeper_fixtures import Connect, TcpProxy, eventually, eventually_async

from torrentdist.cluster import paths
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.session.znode_operations import Create, SessionState
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.jobs.job_loop import JobLoop
from torrentdist.master.jobs.story_keeper import Stories
from torrentdist.master.master_session import MasterSession
from torrentdist.master.reads.zookeeper_reachability import ZooKeeperReachability
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId, StoreId, SupervisorId
from torrentdist.model.records import AssignmentRecord, MasterRecord, encode
from torrentdist.model.wire.ha_views import OutageView

pytestmark = pytest.mark.anyio

M1 = MasterRecord(
    id=MasterId("m1"), host="h", port=1, url="http://m1", swarm_port=2, store=StoreId("s"), version="0", started_at=0.0
)


@pytest.mark.case("D10")
async def test_a_server_that_holds_its_answers_back_is_not_seen(connect: Connect, proxy: TcpProxy) -> None:
    """If this fails, a frozen ZooKeeper stops every job, or a leader moves workers that still
    run."""
    zk = await connect(servers=[proxy.address])
    sight = ZooKeeperReachability(zk)
    seen = await sight.sees(5.0)
    await eventually(lambda: sight.seen_for() > 1.0)
    proxy.hold_answers()
    answers = await asyncio.gather(*(sight.sees(0.2) for _ in range(20)))
    state, after = zk.state, sight.seen_for()
    proxy.mend()

    assert seen
    assert not any(answers)
    assert SessionState.CONNECTED is state, "the connection itself was lost: the test shows nothing"
    assert after < 1.0, "what was seen before such an answer still counts"

    async def again() -> bool:
        return await sight.sees(1.0)

    await eventually_async(again)


def _session(zk: ZooKeeper, mirror: Mirror) -> MasterSession:
    return MasterSession(MasterId("m"), zk, mirror)


async def test_hosts_that_ask_all_the_time_are_all_answered(connect: Connect) -> None:
    """If this fails, a proof fails because another host asked at the same time."""
    sight = ZooKeeperReachability(await connect())

    async def ask(times: int) -> bool:
        return all([await sight.sees(5.0) for _ in range(times)])

    assert all(await asyncio.gather(*(ask(times) for times in range(1, 40))))


@pytest.mark.case("D10")
async def test_a_master_knows_a_hosts_assignment_only_after_it_has_read_it(connect: Connect, proxy: TcpProxy) -> None:
    """If this fails, a master that restarts in an outage vouches for records that it has not
    read."""
    zk, other = await connect(servers=[proxy.address]), await connect()
    mirror = Mirror(zk)
    none: Any = _Nobody()
    jobs = _job_loop(_session(zk, mirror), none)
    s1, s2 = SupervisorId("s1"), SupervisorId("s2")
    before = await jobs.outage_view(s1, 5.0)
    for path, data in (
        (paths.master(M1.id), encode(M1)),
        (paths.assignment(s1), encode(AssignmentRecord(generation=7))),
    ):
        await other.create(path, data)
    await mirror.start(5.0)
    try:
        read = [await jobs.outage_view(s1, 5.0), await jobs.outage_view(s2, 5.0)]
        proxy.hold_answers()
        blind = await jobs.outage_view(s1, 0.2)
    finally:
        proxy.mend()
        await mirror.close()

    assert OutageView(sees=True, newest=None) == before
    assert [OutageView(sees=True, newest=n, masters={M1.id: M1.url}) for n in (7, 0)] == read
    assert OutageView(sees=False, newest=7, masters={M1.id: M1.url}) == blind


async def test_a_master_that_may_have_moved_workers_names_no_newest_assignment(connect: Connect) -> None:
    """D10: if this failed, a worker whose move got no answer would run on beside its successor."""
    zk = await connect()
    mirror, s1 = Mirror(zk), SupervisorId("s1")
    leadership: Any = _Unsure()
    jobs = _job_loop(_session(zk, mirror), leadership)
    await mirror.start(5.0)
    try:
        before = await jobs.outage_view(s1, 5.0)
        with pytest.raises(TorrentdistError):
            await jobs._commit([Create(paths.assignment(s1), encode(AssignmentRecord(generation=1)))])
        doubtful = await jobs.outage_view(s1, 5.0)
        await jobs._resync()
        after = await jobs.outage_view(s1, 5.0)
    finally:
        await mirror.close()

    assert [0, None, 0] == [view.newest for view in (before, doubtful, after)]


def _job_loop(session: MasterSession, leadership: Any) -> JobLoop:
    reachability, config = ZooKeeperReachability(session.zookeeper), Config()
    heartbeats = Heartbeats(session, leadership, reachability, config.jobs.silent_secs)
    stories = Stories(session, lambda: True)
    return JobLoop(session, leadership, reachability, heartbeats, stories, config)


class _Unsure:
    """A leader whose writes are sent and never answered."""

    def fence(self) -> Self:
        return self

    async def commit(self, _: object) -> None:
        raise TorrentdistError("outcome_unknown", detail="a test")


class _Nobody:
    """Stands in for parts that this question does not need."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")
