"""Resource groups on a real ZooKeeper: who has what, as members come and go."""

from __future__ import annotations

import asyncio
import time

import pytest
from group_members import GROUP, QUICK, Worker, Workers, add_resources, holds_exactly, oracle, worker
from zookeeper_fixtures import SESSION_SECS, Connect, eventually, eventually_async

from torrentdist.cluster.rebalance import (
    Algorithm,
    Settings,
    add_resource,
    join,
    list_groups,
    remove_resource,
    show_group,
)
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.errors import TorrentdistError

pytestmark = pytest.mark.anyio
both = pytest.mark.parametrize("algorithm", Algorithm)
__all__ = ["oracle", "worker"]  # fixtures


@both
async def test_c1_resources_are_shared_by_who_is_left(connect: Connect, worker: Workers, algorithm: Algorithm) -> None:
    """C1: if this fails, the resources of a member that stops have no owner, or others have more
    than their share."""
    await add_resources(await connect(), 6)
    members = [await worker(name, algorithm) for name in "abc"]
    await holds_exactly(members, [2, 2, 2])

    await members.pop(0).leave()
    await holds_exactly(members, [3, 3])
    await members.pop(1).leave()
    await holds_exactly(members, [6])


@both
async def test_c2_who_comes_gets_a_share(connect: Connect, worker: Workers, algorithm: Algorithm) -> None:
    """C2: if this fails, a member that joins later has nothing to do, or takes more than the
    others."""
    await add_resources(await connect(), 6)
    members: list[Worker] = []

    for loads in ([6], [3, 3], [2, 2, 2]):
        members.append(await worker(f"m{len(members)}", algorithm))
        await holds_exactly(members, loads)


async def assigned(admin: ZooKeeper, count: int) -> bool:
    """Whether the present plan covers `count` resources, and no member still has to stop for it."""
    view = await show_group(admin, GROUP)
    return view.state == "assigned" and sum(len(member.resources) for member in view.members) == count


@both
async def test_c3_a_spare_member_disturbs_nobody(connect: Connect, worker: Workers, algorithm: Algorithm) -> None:
    """C3: if this fails, work stops and starts again because of a member without resources, even
    the coordinator."""
    admin = await connect()
    await add_resources(admin, 2)
    first, second, third = [await worker(name, algorithm) for name in "abc"]
    await holds_exactly([first, second], [1, 1])
    await remove_resource(admin, GROUP, next(iter(first.member.resources)))
    await eventually_async(lambda: assigned(admin, 1))
    await holds_exactly([first, second, third], [0, 0, 1])
    busy = next(member for member in (second, third, first) if member.member.resources)
    spare = [member for member in (first, second, third) if member is not busy]
    before = list(busy.events)

    late = await worker("late", algorithm)
    for leaving in (*spare, late):
        await leaving.leave()
    await eventually(busy.member.is_coordinator)
    with pytest.raises(TimeoutError):  # a rebalancing would have come by now
        await eventually(lambda: before != busy.events, 3 * QUICK.min_interval_secs)

    assert before == busy.events


@pytest.mark.alone
@both
async def test_c4_a_lost_member_is_replaced(connect: Connect, worker: Workers, algorithm: Algorithm) -> None:
    """C4, C7: if this fails, the resources of a member that vanished have no owner."""
    await add_resources(await connect(), 6)
    members = [await worker(name, algorithm) for name in "abc"]
    await holds_exactly(members, [2, 2, 2])

    lost = members.pop(0)  # the coordinator
    lost.before_stop = lost.zk.close
    began = time.monotonic()
    await lost.zk.close()
    await holds_exactly(members, [3, 3])

    assert time.monotonic() - began < SESSION_SECS + 5.0


@both
async def test_c5_triggers_within_the_interval_become_one(
    connect: Connect, worker: Workers, algorithm: Algorithm
) -> None:
    """C5: if this fails, each of many changes stops the work of all members again."""
    admin = await connect()
    await add_resources(admin, 2)
    one = await worker("one", algorithm, settings=Settings(min_interval_secs=2.0))
    await holds_exactly([one], [2])

    for number in range(10, 20):
        await add_resource(admin, GROUP, f"r{number}")
        await asyncio.sleep(0)
    await holds_exactly([one], [12])

    assert 2 == [event for event, _ in one.events].count("start")


@both
async def test_the_interval_holds_across_coordinators(connect: Connect, worker: Workers, algorithm: Algorithm) -> None:
    """C5: if this fails, a new coordinator rebalances at once, so a rolling restart stops all work
    again and again."""
    await add_resources(await connect(), 4)
    slow = Settings(min_interval_secs=1.5)
    first, second = [await worker(name, algorithm, settings=slow) for name in "ab"]
    await holds_exactly([first, second], [2, 2])
    began = time.monotonic()

    await first.leave()
    await holds_exactly([second], [4])

    assert time.monotonic() - began > 1.0


@both
async def test_an_administrator_sees_the_group(connect: Connect, worker: Workers, algorithm: Algorithm) -> None:
    """If this fails, `group show` is wrong about members, coordinator and resources."""
    admin = await connect()
    await add_resources(admin, 3)
    first = await worker("first", algorithm)
    second = await worker("second", algorithm)
    await holds_exactly([first, second], [1, 2])

    view = await show_group(admin, GROUP)

    assert [("first", True), ("second", False)] == [(member.id, member.coordinator) for member in view.members]
    assert (algorithm.value, "assigned", []) == (view.algorithm, view.state, view.unassigned)
    assert ["r0", "r1", "r2"] == sorted(r for member in view.members for r in member.resources) == view.resources
    assert [(GROUP, 2, 3)] == [(line.group, line.members, line.resources) for line in await list_groups(admin)]


async def test_a_group_has_one_algorithm(connect: Connect, worker: Workers) -> None:
    """If this fails, a group has two algorithms, and a member that ignores barriers works on
    others' resources."""
    await worker("first", Algorithm.RESOURCE_BARRIER)
    zk = await connect()

    async def nothing(*_: object) -> None: ...

    with pytest.raises(TorrentdistError) as caught:
        await join(zk, GROUP, on_start=nothing, on_stop=nothing, algorithm=Algorithm.GLOBAL_BARRIER)

    assert "config_invalid" == caught.value.code


async def test_an_administrator_changes_a_group_without_members(connect: Connect) -> None:
    """If this fails, resources cannot be prepared before the first member joins, or a mistake goes
    unnoticed."""
    zk = await connect()

    added = [await add_resource(zk, GROUP, "r0"), await add_resource(zk, GROUP, "r0")]
    with pytest.raises(TorrentdistError, match="does not exist"):
        await remove_resource(zk, GROUP, "r1")
    with pytest.raises(TorrentdistError, match="not valid"):
        await add_resource(zk, GROUP, "../epoch")

    assert [True, False] == added
    assert ["r0"] == (await show_group(zk, GROUP)).unassigned
