"""What the ZooKeeper facade does when connections, sessions, servers and whole ensembles fail."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from pathlib import Path

import pytest
from zookeeper_fixtures import SHORT, Connect, TcpProxy, eventually, expire

from torrentdist.cluster import paths
from torrentdist.cluster.session.founding import found_cluster
from torrentdist.cluster.session.znode_operations import Create, SessionExpired, SessionState
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.host.process.listening_sockets import free_ports
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError

pytestmark = pytest.mark.anyio


async def code_of(attempt: asyncio.Future[object] | asyncio.Task[object]) -> str:
    with pytest.raises(TorrentdistError) as caught:
        await attempt
    return caught.value.code


@pytest.mark.alone
@pytest.mark.case("D2")
async def test_no_call_outlives_its_deadline_while_the_server_is_frozen(
    own_zookeeper: EmbeddedZooKeeper, connect: Connect
) -> None:
    """If this fails, a leader hangs in a call, as kazoo's synchronous calls do: 11 s in a session
    of 4 s. Or a busy client never notices that its server is frozen, and never connects to another
    one."""
    zk = await connect(servers=own_zookeeper.addresses, operation_timeout_secs=0.5, session_timeout_secs=3.0)
    await zk.create("/a")
    own_zookeeper.servers[0].pause()
    codes: list[list[str]] = []
    took: list[float] = []
    states = [zk.state]
    while states[-1] is SessionState.CONNECTED and len(codes) < 20:  # connected at first, then suspended
        begun = time.monotonic()
        states.append(zk.state)
        codes.append([await code_of(asyncio.ensure_future(call)) for call in (zk.get("/a"), zk.set("/a", b""))])
        took.append(time.monotonic() - begun)
    own_zookeeper.servers[0].resume()
    await zk.wait_connected(10.0)

    assert max(took) < 2 * 0.5 + 0.5
    assert codes[0] == ["zookeeper_unavailable", "outcome_unknown"]
    assert codes[-1] == ["zookeeper_unavailable", "zookeeper_unavailable"]
    assert states[-1] is SessionState.SUSPENDED
    assert await zk.get("/a") is not None


@pytest.mark.case("D2")
async def test_who_asks_often_leaves_a_silent_server_for_another_in_the_same_session(
    zookeeper: EmbeddedZooKeeper, connect: Connect
) -> None:
    """If this failed, a busy client would stay with a server that receives everything and answers
    nothing until its session is over, as kazoo does."""
    doors = [TcpProxy(zookeeper.servers[0]), TcpProxy(zookeeper.servers[0])]
    for door in doors:
        await door.start()
    zk = await connect(servers=[door.address for door in doors], session_timeout_secs=6.0, operation_timeout_secs=0.5)
    await zk.create("/a")
    session = zk.session_id
    used, other = sorted(doors, key=lambda door: door.accepted, reverse=True)
    used.hold_answers()
    began = time.monotonic()
    while not other.accepted and time.monotonic() - began < 6.0:
        with contextlib.suppress(TorrentdistError):
            await zk.get("/a")
    await zk.wait_connected(10.0)

    assert other.accepted
    assert session == zk.session_id
    assert await zk.get("/a") is not None
    await zk.close()
    for door in doors:
        await door.close()


@pytest.mark.alone
async def test_a_handshake_that_nobody_answers_is_soon_given_up(connect: Connect, proxy: TcpProxy) -> None:
    """If this fails, a server that is just starting costs the time in which a host must take its
    barriers again after an outage, and its workers end."""
    zk = await connect(servers=[proxy.address], session_timeout_secs=6.0)
    session = zk.session_id
    proxy.hold_answers()
    await proxy.dropped_and_back()
    held, began = proxy.accepted, time.monotonic()
    await eventually(lambda: proxy.accepted > held, 10.0)
    took = time.monotonic() - began
    proxy.mend()
    await zk.wait_connected(10.0)

    assert took < 6.0 / 3
    assert session == zk.session_id


@pytest.mark.case("D9")
async def test_it_waits_for_a_zookeeper_that_starts_later(
    own_zookeeper: EmbeddedZooKeeper, connect: Connect, chroot: str
) -> None:
    """If this fails, a daemon that was started before ZooKeeper has to be started again."""
    server = own_zookeeper.servers[0]
    server.stop()
    zk = ZooKeeper(ZooKeeperConfig(servers=[server.address], chroot=chroot))
    code = await code_of(asyncio.ensure_future(zk.start(0.3)))
    server.spawn()
    await zk.start(15.0)
    await found_cluster(zk)
    made = await zk.create("/a")
    await zk.close()

    assert (code, made) == ("zookeeper_unavailable", "/a")


@pytest.mark.case("D3")
async def test_an_expired_session_is_told_and_followed_by_another(connect: Connect) -> None:
    """If this fails, a client relies on ephemeral znodes and leases of a session that is over."""
    zk = await connect()
    await zk.create("/mine", ephemeral=True)
    seen: list[SessionState] = []
    zk.on_state.append(seen.append)
    generation, session = zk.generation, zk.session_id
    await expire(zk)
    await eventually(lambda: zk.generation > generation)

    assert SessionState.LOST in seen
    assert seen[-1] is SessionState.CONNECTED
    assert zk.session_id != session
    assert zk.last_write_acknowledged is None
    assert await zk.exists("/mine") is None


async def test_a_write_is_not_carried_into_another_session(
    zookeeper: EmbeddedZooKeeper, connect: Connect, proxy: TcpProxy
) -> None:
    """If this fails, a deposed leader's write is carried out in its next session, as kazoo's retry
    does."""
    zk = await connect(servers=[proxy.address], operation_timeout_secs=5.0)
    proxy.cut()
    await eventually(lambda: zk.state is SessionState.SUSPENDED)
    write = asyncio.ensure_future(zk.commit([Create("/late")]))
    await expire(zk, zookeeper.addresses)
    proxy.mend()
    with pytest.raises(SessionExpired):
        await write

    assert await zk.exists("/late") is None


async def test_a_write_whose_answer_is_lost_is_said_to_be_unknown(connect: Connect, proxy: TcpProxy) -> None:
    """If this fails, a write that happened is reported as failed, or is done twice."""
    zk, other = await connect(servers=[proxy.address], **SHORT), await connect()
    proxy.swallow_answer_to(b"/made")
    code = await code_of(asyncio.ensure_future(zk.create("/made")))
    proxy.mend()

    assert code == "outcome_unknown"
    assert await other.exists("/made") is not None
    assert [name for name in await other.children("/") or () if "made" in name] == ["made"]


async def test_reads_outlive_a_lost_connection(connect: Connect, proxy: TcpProxy) -> None:
    """If this fails, every reconnect becomes an error, although there was time to ask again."""
    zk = await connect(servers=[proxy.address], operation_timeout_secs=5.0)
    await zk.create("/a", b"1")
    proxy.swallow_answer_to(b"/a")
    read = asyncio.ensure_future(zk.get("/a"))
    await eventually(lambda: not proxy.answering)
    proxy.drop()
    proxy.mend()
    found = await read

    assert found is not None
    assert found[0] == b"1"


async def test_the_lease_counts_from_the_sending_of_acknowledged_writes(connect: Connect, proxy: TcpProxy) -> None:
    """If this fails, a leader relies on reads, on late answers, or on writes that may never have
    arrived."""
    zk = await connect(servers=[proxy.address], **SHORT)
    before = time.monotonic()
    await zk.create("/a")
    acknowledged = zk.last_write_acknowledged
    after = time.monotonic()
    await zk.get("/a")
    read = zk.last_write_acknowledged
    proxy.swallow_answer_to(b"/a")
    await code_of(asyncio.ensure_future(zk.set("/a", b"")))

    assert acknowledged is not None
    assert before <= acknowledged <= after
    assert acknowledged == read == zk.last_write_acknowledged


async def test_the_granted_timeout_is_known(connect: Connect, tmp_path: Path) -> None:
    """If this fails, leases are computed from the requested timeout instead of the granted one,
    which kazoo drops."""
    server = EmbeddedZooKeeper(tmp_path / "zookeeper", config=("minSessionTimeout=8000", "maxSessionTimeout=9000"))
    server.start()
    try:
        asked = [await connect(servers=server.addresses, session_timeout_secs=secs) for secs in (5.0, 600.0)]
        granted = [zk.negotiated_timeout for zk in asked]
        await asyncio.gather(*(zk.close() for zk in asked))
    finally:
        server.kill()

    assert granted == [8.0, 9.0]


@pytest.mark.case("D18")
async def test_an_ensemble_that_was_wiped_is_joined_again(own_zookeeper: EmbeddedZooKeeper, connect: Connect) -> None:
    """If this fails, daemons must be restarted after ZooKeeper was wiped, because its servers
    refuse a client that has seen more."""
    zk = await connect(servers=own_zookeeper.addresses, session_timeout_secs=1.0)
    for n in range(20):
        await zk.create(f"/a{n}")
    generation, server = zk.generation, own_zookeeper.servers[0]
    server.kill()
    shutil.rmtree(server.directory / "data")
    server.spawn()
    await eventually(lambda: zk.generation > generation, 20.0)
    founded = await found_cluster(zk)

    assert founded.founded
    assert await zk.children("/a0") is None


async def test_a_server_that_was_restarted_keeps_the_session(
    own_zookeeper: EmbeddedZooKeeper, connect: Connect
) -> None:
    """If this fails, a restart of ZooKeeper costs every daemon its session."""
    zk = await connect(servers=own_zookeeper.addresses, session_timeout_secs=20.0)
    await zk.create("/mine", ephemeral=True)
    session = zk.session_id
    own_zookeeper.servers[0].kill()
    own_zookeeper.servers[0].spawn()
    await eventually(lambda: zk.state is not SessionState.CONNECTED)
    await zk.wait_connected(15.0)

    assert zk.session_id == session
    assert await zk.exists("/mine") is not None


async def test_closing_ends_the_session_and_what_waits_for_it(connect: Connect) -> None:
    """If this fails, a stopped daemon stays visible for a whole session, or hangs in a call."""
    zk, other = await connect(), await connect()
    await zk.create("/mine", ephemeral=True)
    await zk.close()

    assert await other.exists("/mine") is None
    assert await code_of(asyncio.ensure_future(zk.get("/mine"))) == "closing"


@pytest.mark.alone
async def test_closing_is_bounded_when_nobody_listens(chroot: str) -> None:
    """If this fails, a daemon cannot be stopped while ZooKeeper is away."""
    zk = ZooKeeper(ZooKeeperConfig(servers=[f"127.0.0.1:{free_ports(1)[0]}"], chroot=chroot))
    await code_of(asyncio.ensure_future(zk.start(0.2)))
    begun = time.monotonic()
    await zk.close()

    assert time.monotonic() - begun < 1.0


@pytest.mark.case("D4")
async def test_a_callback_may_call_zookeeper(connect: Connect, proxy: TcpProxy) -> None:
    """If this fails, a listener that asks ZooKeeper something deadlocks the client, as with
    kazoo."""
    zk = await connect(servers=[proxy.address], operation_timeout_secs=5.0)
    asked: list[asyncio.Future[list[str] | None]] = []
    zk.on_state.append(lambda state: asked.append(asyncio.ensure_future(zk.children("/"))))
    await proxy.dropped_and_back()
    await zk.wait_connected(5.0)
    answers = await asyncio.gather(*asked)

    assert answers
    assert all(answer is not None and paths.name(paths.CLUSTER) in answer for answer in answers)


@pytest.mark.parametrize("chroot_given", ["", "/", "torrentdist", "/a//b", "/a/../b", "/a b", "/a/"])
def test_a_bad_chroot_is_refused(chroot_given: str) -> None:
    """If this fails, daemons write into another application's tree, or nowhere."""
    with pytest.raises(TorrentdistError) as caught:
        ZooKeeper(ZooKeeperConfig(chroot=chroot_given))

    assert caught.value.code == "config_invalid"
