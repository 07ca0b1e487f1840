"""A hundred lost connections in a row: nothing accumulates, neither here nor on the server."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest
from zookeeper_fixtures import Connect, TcpProxy, eventually

from torrentdist.cluster.election.elector import Elector
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.records.registration import Registration
from torrentdist.cluster.session.znode_operations import SessionState
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId, StoreId
from torrentdist.model.records import MasterRecord

pytestmark = pytest.mark.anyio

FLAPS = 80


def watches(zookeeper: EmbeddedZooKeeper) -> int:
    found = re.search(r"Total watches:(\d+)", zookeeper.servers[0].command("wchs"))
    assert found is not None
    return int(found[1])


@pytest.mark.case("D14")
async def test_flaps_leave_no_watch_thread_or_task(own_zookeeper: EmbeddedZooKeeper, connect: Connect) -> None:
    """If this fails, a bad network fills the memory of a master or of its ZooKeeper until one of
    them fails. It takes long: a ZooKeeper starts, and a hundred connections break."""
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
    await eventually(elector.is_leader)  # it may be that no write got through for longer than a lease
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


async def test_requests_are_numbered_on_over_connections(connect: Connect, proxy: TcpProxy) -> None:
    """If this fails, a late commit of the previous connection can be taken for the answer to a new
    request with that number."""
    zk = await connect(servers=[proxy.address])
    await zk.create("/a")
    numbers = []
    for _ in range(3):
        await zk.set("/a", b"")
        assert zk._driver is not None
        numbers.append(zk._driver._client._connection._xid)
        await proxy.dropped_and_back()
        await zk.wait_connected(5.0)

    assert numbers[0] > 1
    assert numbers == sorted(set(numbers))


async def test_an_answer_to_another_request_is_no_answer(connect: Connect, proxy: TcpProxy) -> None:
    """If this fails, kazoo's thread dies of it and takes the session along, or the outcome wrongly
    counts as known."""
    zk = await connect(servers=[proxy.address])
    await zk.create("/a")
    assert zk._driver is not None
    client = zk._driver._client
    proxy.hold_answers()
    writing = asyncio.create_task(zk.set("/a", b"x"))
    await eventually(lambda: client._pending)
    request, answer, number = client._pending.popleft()
    client._pending.append((request, answer, number + 1))
    proxy.mend()
    with pytest.raises(TorrentdistError) as caught:
        await writing
    await zk.wait_connected(10.0)

    assert caught.value.code == "outcome_unknown"
    assert await zk.get("/a") is not None
    assert zk.generation == 1
