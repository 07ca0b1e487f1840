"""The ZooKeeper facade against a real server: reads, writes, watches, transactions and their
failures."""

from __future__ import annotations

import asyncio
import time

import pytest
from zookeeper_fixtures import Connect, TcpProxy, eventually

from torrentdist.cluster import paths
from torrentdist.cluster.session.znode_operations import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    Set,
    Stat,
    TransactionFailed,
)
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.model.errors import TorrentdistError

pytestmark = pytest.mark.anyio


async def own(zk: ZooKeeper) -> list[str]:
    """Returns what the test has made, without what every cluster has from the beginning."""
    given = {paths.name(path) for path in (*paths.PARENTS, *paths.LATER_PARENTS, paths.CLUSTER)}
    return sorted(set(await zk.children("/") or ()) - given)


async def test_writes_can_be_read(connect: Connect) -> None:
    """If this fails, a read does not return what was written, or paths show the chroot, and nothing
    else can work."""
    zk = await connect()
    path = await zk.create("/a", b"1")
    stat = await zk.set("/a", b"2", 0)
    found = await zk.get("/a")

    assert path == "/a"
    assert stat.version == 1
    assert found is not None
    assert (b"2", stat) == found
    assert await own(zk) == ["a"]


async def test_missing_znodes_are_none(connect: Connect) -> None:
    """If this fails, an absent record looks like an outage, or an outage like an absent record."""
    zk = await connect()

    assert await zk.get("/none") is None
    assert await zk.children("/none") is None
    assert await zk.exists("/none") is None


async def test_refused_writes_are_typed(connect: Connect) -> None:
    """If this fails, callers cannot tell a lost race from a failure."""
    zk = await connect()
    await zk.create("/a")

    with pytest.raises(NodeExists):
        await zk.create("/a")
    with pytest.raises(BadVersion):
        await zk.set("/a", b"", 7)
    with pytest.raises(NoNode):
        await zk.delete("/b")


async def test_sequential_names_follow_the_prefix(connect: Connect) -> None:
    """If this fails, the election's znodes lose their unique prefix."""
    zk = await connect()
    await zk.ensure("/election")

    assert await zk.create("/election/u-", sequential=True, ephemeral=True) == "/election/u-0000000000"


@pytest.mark.case("D6")
async def test_a_refused_transaction_raises_and_names_the_operation(connect: Connect) -> None:
    """If this fails, a transaction that did nothing counts as done, because kazoo returns errors
    instead of raising them."""
    zk = await connect()
    await zk.create("/a")
    ops: list[Op] = [Check("/a", 0), Create("/b"), Set("/a", b"x", 5), Create("/c")]
    with pytest.raises(TransactionFailed) as caught:
        await zk.commit(ops)

    assert caught.value.index == 2
    assert ops[2] == caught.value.op
    assert isinstance(caught.value.reason, BadVersion)
    assert caught.value.reason.path == "/a"
    assert await own(zk) == ["a"]


async def test_a_transaction_answers_operation_by_operation(connect: Connect) -> None:
    """If this fails, the epoch read from a transaction's result is another operation's."""
    zk = await connect()
    await zk.create("/a")
    await zk.create("/d")
    results = await zk.commit(
        [Check("/a"), Create("/s-", sequential=True), Set("/a", b"x", 0), Delete("/d", 0), Create("/e")]
    )

    assert [results[0], results[3], results[4]] == [None, None, "/e"]
    assert isinstance(results[1], str)
    assert results[1].startswith("/s-0000000")
    assert isinstance(results[2], Stat)
    assert results[2].version == 1


@pytest.mark.parametrize("size", [899_000, 1_200_000])
async def test_oversized_writes_are_refused_before_they_are_sent(connect: Connect, size: int) -> None:
    """If this fails, a large record looks like a lost connection and is retried for ever."""
    zk = await connect()
    generation = zk.generation
    if size < 900_000:
        await zk.commit([Create("/large", b"x" * size)])
    else:
        for attempt in (zk.create("/large", b"x" * size), zk.commit([Create("/a"), Create("/large", b"x" * size)])):
            with pytest.raises(TorrentdistError) as caught:
                await attempt
            assert caught.value.code == "too_large"

    assert (["large"] if size < 900_000 else []) == await own(zk)
    assert generation == zk.generation


async def test_watches_fire_once_for_what_they_watch(connect: Connect) -> None:
    """If this fails, the mirror misses changes or reads in circles."""
    zk, other = await connect(), await connect()
    await zk.create("/a")
    fired: list[str] = []
    await zk.get("/a", lambda: fired.append("data"))
    await zk.children("/a", lambda: fired.append("children"))
    await zk.exists("/b", lambda: fired.append("created"))
    await other.set("/a", b"1")
    await other.create("/a/1")
    await other.create("/b")
    await other.set("/a", b"2")
    await zk.sync()

    assert fired == ["data", "children", "created"]


async def test_a_change_is_seen_before_the_answer_that_follows_it(connect: Connect) -> None:
    """If this fails, sync() proves nothing: an answer may overtake the event of an earlier
    change."""
    zk, other = await connect(), await connect()
    await zk.create("/a")
    late: list[int] = []
    for turn in range(200):
        fired = asyncio.Event()
        await zk.get("/a", fired.set)
        await other.set("/a", str(turn).encode())
        await zk.sync()
        if not fired.is_set():
            late.append(turn)

    assert late == []


async def test_a_watch_fires_when_the_connection_is_lost(connect: Connect, proxy: TcpProxy) -> None:
    """If this fails, a client that waits for the end of a znode waits for ever after a
    reconnect."""
    zk = await connect(servers=[proxy.address])
    await zk.create("/a")
    fired: list[str] = []
    await zk.get("/a", lambda: fired.append("data"))
    proxy.drop()
    await eventually(lambda: fired)

    assert fired == ["data"]


async def test_server_time_follows_the_servers_clock(connect: Connect) -> None:
    """If this fails, ages of records are computed with a host's own clock."""
    zk = await connect()
    await zk.create("/a")
    before = zk.server_now()
    stat = await zk.set("/a", b"")
    now = zk.server_now()

    assert before is None
    assert now is not None
    assert 0 <= now - stat.mtime < 5.0


@pytest.mark.case("F6")
async def test_server_time_is_never_ahead_of_the_servers_clock(
    connect: Connect, own_zookeeper: EmbeddedZooKeeper
) -> None:
    """If this fails, a slow server ends the lease of a host that was shut out before its time, and
    a worker runs twice."""
    zk = await connect(servers=own_zookeeper.addresses)
    await zk.create("/a")
    own_zookeeper.servers[0].pause()
    try:
        written = asyncio.create_task(zk.set("/a", b""))
        await asyncio.sleep(0.5)
    finally:
        own_zookeeper.servers[0].resume()
    await written
    now = zk.server_now()

    assert now is not None
    assert now <= time.time()
