"""Hundreds of lost connections in a row: nothing piles up, here or on the server."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest
from zookeeper_fixtures import Connect, TcpProxy, eventually

from torrentdist.cluster.election import Elector
from torrentdist.cluster.mirror import Mirror
from torrentdist.cluster.operations import SessionState
from torrentdist.cluster.registration import Registration
from torrentdist.dev.zookeeper import EmbeddedZooKeeper
from torrentdist.model.ids import MasterId, StoreId
from torrentdist.model.records import MasterRecord

pytestmark = pytest.mark.anyio

FLAPS = 200


def watches(zookeeper: EmbeddedZooKeeper) -> int:
    found = re.search(r"Total watches:(\d+)", zookeeper.servers[0].command("wchs"))
    assert found is not None
    return int(found[1])


@pytest.mark.case("D14")
async def test_flaps_leave_no_watch_thread_or_task(own_zookeeper: EmbeddedZooKeeper, connect: Connect) -> None:
    """If this fails, a bad network fills a master or its ZooKeeper, until one of them falls over."""
    proxy = TcpProxy(own_zookeeper.servers[0])
    await proxy.start()
    zk = await connect(servers=[proxy.address], session_timeout_secs=10.0)
    mirror = Mirror(zk)
    record = MasterRecord(
        id=MasterId("m1"), host="h", port=1, url="http://h", swarm_port=2, store=StoreId("s"), version="0",
        started_at=0.0,
    )  # fmt: skip
    registration = Registration(zk, record)
    await registration.start()
    await mirror.start(10.0)
    elector = Elector(zk, MasterId("m1"), lambda: asyncio.sleep(0, True), pause_secs=0.05)
    await elector.queue_up()
    await eventually(lambda: elector.is_leader() and mirror.snapshot.leader == "m1")
    await flap(proxy, zk.wait_connected, 20)
    await settled(mirror, registration)
    before = (threading.active_count(), len(asyncio.all_tasks()), watches(own_zookeeper))
    await flap(proxy, zk.wait_connected, FLAPS)
    await settled(mirror, registration)
    await eventually(lambda: watches(own_zookeeper) <= before[2])
    after = (threading.active_count(), len(asyncio.all_tasks()), watches(own_zookeeper))

    assert all(late <= early for late, early in zip(after, before, strict=True)), (before, after)
    assert elector.is_leader()
    assert zk.generation == 1
    await elector.leave_queue()
    await mirror.close()
    await registration.close()
    await zk.close()
    await proxy.close()
    assert zk.state is SessionState.CLOSED


async def flap(proxy: TcpProxy, connected: object, times: int) -> None:
    for _ in range(times):
        await proxy.dropped_and_back()
        await connected(5.0)  # type: ignore[operator]


async def settled(mirror: Mirror, registration: Registration) -> None:
    await mirror.sync(5.0)
    await eventually(lambda: mirror.fresh and registration.registered)
