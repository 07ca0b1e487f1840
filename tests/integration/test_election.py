"""The elector against a real ZooKeeper."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import msgspec
import pytest
from contenders import Contend
from zookeeper_fixtures import SHORT, Connect, TcpProxy, eventually, eventually_async, expire

from torrentdist.cluster import paths
from torrentdist.cluster.election.elector import Elector
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.election.term import HISTORY, ElectionPhase
from torrentdist.cluster.session.znode_operations import Create, Op, Stat, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId
from torrentdist.model.records import FailoverRecord, decode, encode

pytestmark = pytest.mark.anyio


async def failovers(zk: ZooKeeper) -> list[FailoverRecord]:
    names = sorted(await zk.children(paths.FAILOVERS) or ())
    found = [await zk.get(paths.failover(name)) for name in names]
    return [decode(node[0], FailoverRecord, path="") for node in found if node]


async def test_the_first_leads_and_the_next_follows(contend: Contend) -> None:
    """If this fails, there is no leader, or no failover at a clean stop."""
    first = await contend("m1")
    await first.leads()
    second = await contend("m2")

    async def both_queue() -> bool:
        return await second.elector.candidates() == ["m1", "m2"]

    await eventually_async(both_queue)
    leader = await second.elector.leader()
    await first.elector.leave_queue()
    await second.leads()

    assert leader == "m1"
    assert not first.elector.is_leader()
    assert await first.elector.leader() == "m2"
    assert first.gained[0].epoch < second.gained[0].epoch
    assert first.lost == first.gained
    assert [(f.previous, f.current, f.reason) for f in await failovers(second.zk)] == [
        (None, "m1", "first leader"),
        ("m1", "m2", "stopped"),
    ]


async def test_queueing_and_leaving_are_idempotent(contend: Contend) -> None:
    """If this fails, a master stands in the queue twice, or leaves it only halfway."""
    master = await contend("m1")
    await asyncio.gather(*(master.elector.queue_up() for _ in range(3)))
    await master.leads()
    queued = await master.elector.candidates()
    for _ in range(2):
        await master.elector.leave_queue()
    left = await master.elector.candidates()
    await master.elector.queue_up()
    await master.leads()

    assert queued == ["m1"]
    assert left == []
    assert await master.elector.candidates() == ["m1"]


async def test_no_leader_is_an_error(connect: Connect) -> None:
    """If this fails, clients are sent to a master that does not lead."""
    elector = Elector(await connect(), MasterId("m1"), lambda: asyncio.sleep(0, True))
    with pytest.raises(TorrentdistError) as caught:
        await elector.leader()

    assert caught.value.code == "no_leader"
    with pytest.raises(TorrentdistError):
        elector.fence()


@pytest.mark.case("D11")
async def test_elected_is_not_ready(contend: Contend) -> None:
    """If this fails, a master that lacks bundles leads, or keeps the cluster from having a
    leader."""
    unready = await contend("m1", ready=False)
    await eventually(lambda: unready.asked >= 2)
    ready = await contend("m2")
    await ready.leads()
    unready.ready = True
    await unready.elector.queue_up()
    await ready.elector.leave_queue()
    await unready.leads()

    assert len(unready.gained) == 1


async def test_giving_way_names_its_reason(contend: Contend) -> None:
    """If this fails, a leader that finds itself lacking a bundle goes on leading, or the history
    does not say why it stopped."""
    first = await contend("m1")
    await first.leads()
    second = await contend("m2")
    await eventually(lambda: second.elector.phase is ElectionPhase.QUEUED)
    first.elector.give_way("lacks bundle b")
    await second.leads()
    await eventually_async(lambda: _queued(second.elector, ["m2", "m1"]))

    assert (await failovers(second.zk))[-1].reason == "lacks bundle b"


async def _queued(elector: Elector, names: list[str]) -> bool:
    return await elector.candidates() == names


async def test_who_is_called_queued_has_its_place(
    contend: Contend, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, `ha transfer` refuses a master that is shown as a standby, because it has no
    place in the queue."""
    zk, phases = await connect(), []
    first = await contend("m1", zk)
    await first.leads()
    second = await contend("m2")
    await eventually(lambda: second.elector.phase is ElectionPhase.QUEUED)
    commit = zk.commit

    async def seen_commit(ops: Sequence[Op]) -> list[str | Stat | None]:
        phases.append(first.elector.phase)
        return await commit(ops)

    monkeypatch.setattr(zk, "commit", seen_commit)
    first.elector.give_way("lacks bundle b")
    await eventually_async(lambda: _queued(second.elector, ["m2", "m1"]))
    await eventually(lambda: first.elector.phase is ElectionPhase.QUEUED)

    # A keep-alive may be under way when its place is given up and taken again.
    assert [phase for phase in phases if phase is not ElectionPhase.LEADING] == [
        ElectionPhase.PAUSED,
        ElectionPhase.PAUSED,
    ]


@pytest.mark.case("D8")
async def test_a_leader_whose_znode_is_deleted_steps_down(contend: Contend, connect: Connect) -> None:
    """If this fails, an administrator cannot depose a leader, or two masters believe that they
    lead."""
    first = await contend("m1")
    await first.leads()
    second = await contend("m2")
    admin = await connect()
    await eventually(lambda: second.elector.phase is ElectionPhase.QUEUED)
    await admin.delete(first.gained[0].election)
    await second.leads()
    await eventually(lambda: first.lost == first.gained)

    assert not first.elector.is_leader()
    await eventually_async(lambda: _queued(second.elector, ["m2", "m1"]))


@pytest.mark.case("D3")
async def test_after_expiry_the_old_leader_knows(contend: Contend) -> None:
    """If this fails, a leader whose session expired still believes that it leads, as kazoo's Lock
    does."""
    first = await contend("m1")
    await first.leads()
    second = await contend("m2")
    await eventually(lambda: second.elector.phase is ElectionPhase.QUEUED)
    await expire(first.zk)
    await second.leads()
    await eventually(lambda: first.lost == first.gained)
    await eventually_async(lambda: _queued(second.elector, ["m2", "m1"]))

    assert not first.elector.is_leader()
    assert (await failovers(second.zk))[-1].reason in ("session lost", "died")


@pytest.mark.case("D1")
async def test_a_leader_that_is_cut_off_stops_before_its_session_can_expire(
    proxy: TcpProxy, contend: Contend, connect: Connect
) -> None:
    """If this fails, a leader goes on while ZooKeeper gives its place to another: kazoo does not
    report LOST meanwhile."""
    first = await contend("m1", await connect(servers=[proxy.address], **SHORT))
    await first.leads()
    second = await contend("m2")
    await eventually(lambda: second.elector.phase is ElectionPhase.QUEUED)
    overlaps: list[bool] = []
    proxy.hold_answers()
    proxy.cut()
    await eventually(lambda: first.lost)
    overlaps.append(second.elector.is_leader())
    await second.leads()

    assert overlaps == [False]
    assert not first.elector.is_leader()


@pytest.mark.case("D7")
async def test_a_reconnect_within_the_session_keeps_leadership(
    proxy: TcpProxy, contend: Contend, connect: Connect
) -> None:
    """If this fails, a short loss of connection costs the leadership, or leaves a second znode."""
    first = await contend("m1", await connect(servers=[proxy.address]))
    await first.leads()
    epoch = first.elector.fence().epoch
    for _ in range(5):
        await proxy.dropped_and_back()
        await first.zk.wait_connected(5.0)
    await first.zk.sync()

    assert first.elector.is_leader()
    assert epoch == first.elector.fence().epoch
    assert await first.elector.candidates() == ["m1"]
    assert first.lost == []


async def test_a_create_whose_answer_is_lost_leaves_no_ghost(
    proxy: TcpProxy, contend: Contend, connect: Connect
) -> None:
    """If this fails, a candidate queues twice, and its first znode blocks the election for as long
    as it exists."""
    zk, other = await connect(servers=[proxy.address], operation_timeout_secs=0.5), await connect()
    await other.ensure(paths.ELECTION)
    contender = await contend("m1", zk)
    await contender.leads()
    for _ in range(3):
        await contender.elector.leave_queue()
        proxy.swallow_answer_to(f"{paths.election_prefix(contender.elector._unique)}".encode())
        await contender.elector.queue_up()
        await eventually_async(lambda: _count(other, 1))
        proxy.mend()
        proxy.drop()
        await contender.leads()

        assert await contender.elector.candidates() == ["m1"]


async def _count(zk: ZooKeeper, count: int) -> bool:
    return len(await zk.children(paths.ELECTION) or ()) == count


@pytest.mark.case("A30")
async def test_a_restarted_master_removes_its_own_ghost(contend: Contend, connect: Connect) -> None:
    """If this fails, a leader killed with -9 and restarted waits for its own old session before it
    leads."""
    dead = await connect(session_timeout_secs=30.0)
    await dead.ensure(paths.ELECTION)
    await dead.create(paths.election_prefix("0123456789abcdef"), b"m1", ephemeral=True, sequential=True)
    await dead.create(paths.election_prefix("fedcba9876543210"), b"m2", ephemeral=True, sequential=True)
    restarted = await contend("m1")
    await eventually(lambda: restarted.elector.phase is ElectionPhase.QUEUED)
    await eventually_async(lambda: _queued(restarted.elector, ["m2", "m1"]))

    assert not restarted.elector.is_leader()


@pytest.mark.case("D5")
async def test_a_deposed_leaders_write_is_refused(contend: Contend, connect: Connect) -> None:
    """If this fails, a leader that was paused changes what its successor decided."""
    first = await contend("m1")
    await first.leads()
    admin, term = await connect(), first.gained[0]
    fence = Fence(first.zk, term, lambda: True)  # as if it had just looked, and was then paused
    await fence.commit([Create("/in-time")])
    await admin.set(paths.EPOCH, b"", term.epoch)
    with pytest.raises(TorrentdistError) as by_epoch:
        await fence.commit([Create("/late")])
    await admin.delete(term.election)
    fence = Fence(first.zk, msgspec.structs.replace(term, epoch=term.epoch + 1), lambda: True)
    with pytest.raises(TorrentdistError) as by_znode:
        await fence.commit([Create("/late")])

    assert [by_epoch.value.code, by_znode.value.code] == ["leadership_lost", "leadership_lost"]
    assert await admin.exists("/in-time") is not None
    assert await admin.exists("/late") is None


async def test_the_fence_tells_the_callers_refusal_from_its_own(contend: Contend) -> None:
    """If this fails, a lost race for one record looks like lost leadership."""
    master = await contend("m1")
    await master.leads()
    fence = master.elector.fence()
    results = await fence.commit([Create("/a")])
    with pytest.raises(TransactionFailed) as caught:
        await fence.commit([Create("/b"), Create("/a")])

    assert results == ["/a"]
    assert (1, Create("/a")) == (caught.value.index, caught.value.op)


async def test_nothing_is_sent_when_the_lease_is_over(contend: Contend) -> None:
    """If this fails, a leader acts after its session may have expired."""
    master = await contend("m1")
    await master.leads()
    fence = master.elector.fence()
    master.zk.last_write_acknowledged = -1e9
    with pytest.raises(TorrentdistError) as caught:
        await fence.commit([Create("/a")])

    assert caught.value.code == "leadership_lost"
    assert await master.zk.exists("/a") is None


async def test_history_is_bounded(contend: Contend, connect: Connect) -> None:
    """If this fails, the failovers fill ZooKeeper over the years."""
    admin = await connect()
    await admin.ensure(paths.FAILOVERS)
    old = encode(FailoverRecord(previous=None, current=MasterId("x"), at=0.0, reason="old"))
    for _ in range(HISTORY + 5):
        await admin.create(paths.failover_prefix(), old, sequential=True)
    master = await contend("m1")
    await master.leads()
    await eventually_async(lambda: _history_is(admin, HISTORY))

    assert ((await failovers(admin))[-1].current, (await failovers(admin))[-1].reason) == ("m1", "first leader")


async def _history_is(zk: ZooKeeper, count: int) -> bool:
    return len(await zk.children(paths.FAILOVERS) or ()) == count


async def test_the_lease_is_kept_while_leading(contend: Contend, connect: Connect) -> None:
    """If this fails, a healthy leader loses its lease, or several keep-alives are sent where one is
    due."""
    master = await contend("m1", await connect(session_timeout_secs=4.0))
    await master.leads()
    written = [master.zk.last_write_acknowledged]
    for _ in range(3):
        await eventually(lambda: master.zk.last_write_acknowledged != written[-1])
        written.append(master.zk.last_write_acknowledged)
        assert master.elector.is_leader()
    gaps = [b - a for a, b in itertools.pairwise(written) if a is not None and b is not None]

    assert all(0.8 < gap < 2.4 for gap in gaps[1:]), gaps
    assert master.lost == []
