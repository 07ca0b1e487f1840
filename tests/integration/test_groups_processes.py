"""Members of a resource group as processes that are killed and paused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from group_members import GROUP, MemberProcess, Workers, holds_exactly, oracle, worker
from group_oracle import Oracle
from zookeeper_fixtures import SESSION_SECS, Connect, eventually, eventually_async

from torrentdist.cluster.rebalance import Algorithm, add_resource, show_group
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper

pytestmark = pytest.mark.anyio
both = pytest.mark.parametrize("algorithm", Algorithm)
__all__ = ["oracle", "worker"]  # fixtures

Launch = Callable[..., Coroutine[Any, Any, MemberProcess]]


@pytest.fixture
async def launch(zookeeper: EmbeddedZooKeeper, chroot: str, connect: Connect, oracle: Oracle) -> AsyncIterator[Launch]:
    await connect()  # founds their cluster
    processes: list[MemberProcess] = []

    async def start(name: str, algorithm: Algorithm, *, paused: bool = False) -> MemberProcess:
        made = await MemberProcess.start(
            zookeeper.addresses[0], chroot, algorithm, name, oracle, paused=paused, session_secs=SESSION_SECS
        )
        processes.append(made)
        return made

    yield start
    await asyncio.gather(*(process.kill() for process in processes))


async def is_given(admin: ZooKeeper, who: str, count: int) -> bool:
    view = await show_group(admin, GROUP)
    found = [len(member.resources) for member in view.members if member.id == who]
    return found == [count] and view.state == "assigned"


@both
async def test_c4_a_killed_member_is_replaced(
    connect: Connect, worker: Workers, launch: Launch, algorithm: Algorithm
) -> None:
    """C4, C7: if this fails, the resources of a killed member have no owner."""
    admin = await connect()
    for name in ("r0", "r1", "r2", "r3"):
        await add_resource(admin, GROUP, name)
    left = await worker("left", algorithm)
    killed = await launch("killed", algorithm)
    await eventually_async(lambda: is_given(admin, "killed", 2))
    await holds_exactly([left], [2])

    await killed.kill()

    await holds_exactly([left], [4], timeout=SESSION_SECS + 5.0)


@both
async def test_a_paused_process_finds_out_before_it_acts(
    connect: Connect, worker: Workers, launch: Launch, oracle: Oracle, algorithm: Algorithm
) -> None:
    """If this fails, a process that wakes up after its session ended acts once more on others'
    resources."""
    admin = await connect()
    for name in ("r0", "r1"):
        await add_resource(admin, GROUP, name)
    paused = await launch("paused", algorithm, paused=True)
    await eventually_async(lambda: is_given(admin, "paused", 2))
    await eventually(lambda: oracle.acts("r0") and oracle.acts("r1"))
    left = await worker("left", algorithm)
    await holds_exactly([left], [1])

    paused.pause()
    await holds_exactly([left], [2], timeout=SESSION_SECS + 5.0)
    left.act()
    before = oracle.acts("r0") + oracle.acts("r1")
    paused.resume()
    await eventually_async(lambda: is_given(admin, "paused", 1))
    await holds_exactly([left], [1])
    await eventually(lambda: oracle.acts("r0") + oracle.acts("r1") > before)

    assert [] == oracle.overlaps()
