"""Resource groups on a real ZooKeeper with failing callbacks, connections, coordinators and
barriers."""

from __future__ import annotations

import asyncio

import pytest
from group_members import GROUP, QUICK, Worker, Workers, add_resources, holds_exactly, oracle, worker
from zookeeper_fixtures import SESSION_SECS, SHORT, Connect, TcpProxy, eventually, eventually_async, proxy

from torrentdist.cluster.paths import GroupPaths
from torrentdist.cluster.rebalance import Algorithm, Settings, add_resource, join, remove_resource, show_group
from torrentdist.cluster.session.znode_operations import Check, Set, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper

pytestmark = pytest.mark.anyio
both = pytest.mark.parametrize("algorithm", Algorithm)
TREE = GroupPaths(GROUP)
__all__ = ["oracle", "proxy", "worker"]  # fixtures


async def owners(zk: ZooKeeper) -> dict[str, int]:
    """Returns barriers and the sessions that own them."""
    found = {name: await zk.exists(TREE.barrier(name)) for name in await zk.children(TREE.barriers) or ()}
    return {name: stat.ephemeral_owner for name, stat in found.items() if stat is not None}


async def test_c8_a_cancelled_start_leaves_others_barriers_alone(connect: Connect, worker: Workers) -> None:
    """C8: if this fails, a member whose start is cancelled deletes the barriers of working
    members."""
    admin = await connect()
    await add_resources(admin, 2)
    holder = await worker("holder", Algorithm.RESOURCE_BARRIER)
    await holds_exactly([holder], [2])
    stopping = asyncio.Event()
    holder.before_stop = stopping.wait
    late = await worker("late", Algorithm.RESOURCE_BARRIER)
    await eventually(lambda: late.member.statistics().waiting_for)

    await late.leave()

    assert set(await owners(admin)) == {"r0", "r1"}
    assert {holder.zk.session_id} == set((await owners(admin)).values())
    stopping.set()


async def test_c8_a_cancelled_join_leaves_nothing(connect: Connect) -> None:
    """C8: if this fails, a cancelled join leaves a member that does nothing, or a barrier that
    nobody releases."""
    zk, admin = await connect(), await connect()
    await add_resources(admin, 2)
    starting = asyncio.Event()

    async def on_start(_: object) -> None:
        starting.set()
        await asyncio.Event().wait()

    async def on_stop() -> None: ...

    async def use() -> None:
        async with await join(zk, GROUP, on_start=on_start, on_stop=on_stop, settings=QUICK):
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    await starting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ([], []) == (await admin.children(TREE.members), await admin.children(TREE.barriers))


async def test_c9_work_stops_before_its_barrier_goes(connect: Connect, worker: Workers) -> None:
    """C9: if this fails, a barrier goes at shutdown while its work is still stopping."""
    admin = await connect()
    await add_resources(admin, 2)
    leaving = await worker("leaving", Algorithm.RESOURCE_BARRIER)
    await holds_exactly([leaving], [2])
    seen: list[dict[str, int]] = []

    async def look() -> None:
        seen.append(await owners(admin))

    leaving.before_stop = look
    await leaving.leave()

    assert [{"r0": leaving.zk.session_id, "r1": leaving.zk.session_id}] == seen
    assert {} == await owners(admin)


async def test_c9_nobody_starts_before_all_have_stopped(connect: Connect, worker: Workers) -> None:
    """C9: if this fails, a member with the global barrier works before the last one has stopped."""
    await add_resources(await connect(), 4)
    members = [await worker(name, Algorithm.GLOBAL_BARRIER) for name in "ab"]
    await holds_exactly(members, [2, 2])
    slow, quick = members
    may_stop = asyncio.Event()
    slow.before_stop = may_stop.wait

    late = await worker("late", Algorithm.GLOBAL_BARRIER)
    await eventually(lambda: not quick.working_on and slow.events[-1][0] == "stop")

    assert ({}, {}) == (quick.working_on, late.working_on)
    may_stop.set()
    await holds_exactly([*members, late], [1, 1, 2])


@both
async def test_c10_a_start_that_throws_wedges_nothing(connect: Connect, worker: Workers, algorithm: Algorithm) -> None:
    """C10: if this fails, the resources of a member whose on_start raises have no owner, or the
    member never gets any again."""
    await add_resources(await connect(), 4)
    good = await worker("good", algorithm)
    bad = await worker("bad", None)

    async def throw() -> None:
        raise ValueError("on purpose")

    bad.before_start = throw
    await bad.join(algorithm)
    await eventually(lambda: bad.member.statistics().start_failures >= 1)
    await holds_exactly([good], [4])
    bad.before_start = None

    await holds_exactly([good, bad], [2, 2])


@both
async def test_c10_a_stop_that_throws_wedges_nothing(connect: Connect, worker: Workers, algorithm: Algorithm) -> None:
    """C10: if this fails, the resources of a member whose on_stop raises have no owner."""
    await add_resources(await connect(), 4)
    bad = await worker("bad", algorithm)
    await holds_exactly([bad], [4])

    async def throw() -> None:
        raise ValueError("on purpose")

    bad.before_stop = throw
    other = await worker("other", algorithm)

    await holds_exactly([bad, other], [2, 2])


async def test_c10_a_start_that_hangs_can_be_left(connect: Connect, worker: Workers) -> None:
    """C10: if this fails, leaving waits for ever for an on_start that hangs."""
    await add_resources(await connect(), 1)
    member = await worker("hangs", None)
    member.before_start = asyncio.Event().wait
    await member.join(Algorithm.RESOURCE_BARRIER)
    await eventually(lambda: member.working_on)

    async with asyncio.timeout(5.0):
        await member.leave()

    assert ["start", "stop"] == [event for event, _ in member.events]


@both
async def test_c11_a_lost_answer_leaves_no_ghost(
    connect: Connect, proxy: TcpProxy, worker: Workers, algorithm: Algorithm
) -> None:
    """C11: if this fails, a member whose join got no answer is in the group twice, and the ghost
    gets resources."""
    admin = await connect()
    await add_resources(admin, 2)
    await (await worker("first", algorithm)).leave()
    zk = await connect(servers=[proxy.address], session_timeout_secs=6.0)
    proxy.swallow_answer_to(b'"id":"cut"')

    joining = asyncio.create_task(worker("cut", algorithm, zk=zk))
    await eventually(lambda: not proxy.answering)
    await eventually_async(lambda: admin.children(TREE.members))
    proxy.drop()
    proxy.mend()
    member = await joining
    await holds_exactly([member], [2])

    assert 1 == len(await admin.children(TREE.members) or ())


async def is_given(admin: ZooKeeper, who: str, resource: str) -> bool:
    view = await show_group(admin, GROUP)
    return any(resource in member.resources for member in view.members if member.id == who)


async def test_c12_a_resource_removed_while_held_stays_exclusive(connect: Connect, worker: Workers) -> None:
    """C12: if this fails, a resource that is removed and added again gets a second holder before
    the first has stopped."""
    admin = await connect()
    await add_resources(admin, 2)
    quick, slow = [await worker(name, Algorithm.RESOURCE_BARRIER) for name in ("quick", "slow")]
    await holds_exactly([slow, quick], [1, 1])
    may_stop = asyncio.Event()
    slow.before_stop = may_stop.wait
    (kept,) = slow.working_on

    await remove_resource(admin, GROUP, kept)
    await add_resource(admin, GROUP, "another")
    await eventually_async(lambda: is_given(admin, "slow", "another"))
    await add_resource(admin, GROUP, kept)
    await eventually_async(lambda: is_given(admin, "quick", kept))
    await eventually(lambda: kept in quick.member.statistics().waiting_for)

    assert (True, False) == (kept in slow.working_on, kept in quick.working_on)
    may_stop.set()
    await holds_exactly([slow, quick], [1, 2])
    assert kept in quick.working_on


async def test_c12_nobody_gets_it_while_its_holder_stops(connect: Connect, worker: Workers) -> None:
    """C12: if this fails, a resource that comes back gets a new holder while its old one has not
    stopped (global barrier)."""
    admin = await connect()
    await add_resources(admin, 2)
    quick, slow = [await worker(name, Algorithm.GLOBAL_BARRIER) for name in ("quick", "slow")]
    await holds_exactly([slow, quick], [1, 1])
    may_stop = asyncio.Event()
    slow.before_stop = may_stop.wait
    (kept,) = slow.working_on

    await remove_resource(admin, GROUP, kept)
    await eventually(lambda: slow.events[-1][0] == "stop" and not quick.working_on)
    await add_resource(admin, GROUP, kept)

    assert "stopping" == (await show_group(admin, GROUP)).state
    may_stop.set()
    await holds_exactly([slow, quick], [1, 1])


async def test_c13_an_old_coordinator_writes_nothing(connect: Connect, worker: Workers) -> None:
    """C13: if this fails, a deposed coordinator overwrites the plan of its successor."""
    admin = await connect()
    await add_resources(admin, 2)
    old = await worker("old", Algorithm.RESOURCE_BARRIER)
    await holds_exactly([old], [2])
    await eventually(old.member.is_coordinator)
    deposed = old.member._coordinator
    assert deposed is not None
    epoch = (await admin.get(TREE.epoch) or (b"", None))[1]
    assert epoch is not None
    assert deposed.epoch == epoch.version

    await admin.set(TREE.epoch, b"somebody else")
    fence = [Check(TREE.epoch, deposed.epoch), Check(TREE.member(deposed.me))]
    with pytest.raises(TransactionFailed) as caught:
        await old.zk.commit([*fence, Set(TREE.plan, b"mine")])

    assert 0 == caught.value.index
    await add_resource(admin, GROUP, "r9")  # its next write tells it, and it takes office again
    await holds_exactly([old], [3])


@both
async def test_who_is_cut_off_stops_before_others_start(
    connect: Connect, proxy: TcpProxy, worker: Workers, algorithm: Algorithm
) -> None:
    """If this fails, a member without ZooKeeper works on while others have its resources."""
    await add_resources(await connect(), 4)
    cut = await worker("cut", algorithm, zk=await connect(servers=[proxy.address], **SHORT))
    other = await worker("other", algorithm)
    await holds_exactly([cut, other], [2, 2])
    held = list(cut.working_on)

    proxy.cut()
    await eventually(lambda: not cut.working_on)
    still_theirs = [resource for resource in held if resource in other.working_on]
    await holds_exactly([other], [4], timeout=SESSION_SECS + 5.0)
    assert not any(map(cut.holds, held))
    proxy.mend()
    await holds_exactly([cut, other], [2, 2])

    assert [] == still_theirs


async def test_a_short_outage_moves_nothing(connect: Connect, proxy: TcpProxy, worker: Workers) -> None:
    """If this fails, a member that is back before its session ends loses its resources, or never
    works again."""
    admin = await connect()
    await add_resources(admin, 2)
    zk = await connect(servers=[proxy.address], session_timeout_secs=8.0)
    member = await worker("cut", Algorithm.RESOURCE_BARRIER, zk=zk, settings=Settings(stop_secs=4.5))
    await holds_exactly([member], [2])
    before = (await show_group(admin, GROUP)).members

    proxy.cut()
    await eventually(lambda: not member.working_on)
    proxy.mend()
    await holds_exactly([member], [2])

    assert before == (await show_group(admin, GROUP)).members


async def test_fencing_numbers_grow_from_holder_to_holder(connect: Connect, worker: Workers) -> None:
    """If this fails, an outside system cannot tell an old holder's act from the new one's."""
    await add_resources(await connect(), 1)
    first = await worker("first", Algorithm.RESOURCE_BARRIER)
    await holds_exactly([first], [1])
    before = first.member.resources["r0"]
    second: Worker = await worker("second", Algorithm.RESOURCE_BARRIER)

    await first.leave()
    await holds_exactly([second], [1])

    assert second.member.resources["r0"] > before
