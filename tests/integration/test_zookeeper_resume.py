"""A session that one process leaves and the next one takes over, against a real ZooKeeper."""

from __future__ import annotations

import pytest
from zookeeper_fixtures import SESSION_SECS, SHORT, Connect, eventually_async, expire

from torrentdist.cluster import paths
from torrentdist.cluster.records.registration import Registration
from torrentdist.cluster.session.zookeeper_session import SessionState, ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.ids import StoreId, SupervisorId
from torrentdist.model.records import SupervisorRecord, decode

pytestmark = pytest.mark.anyio


def config_of(zookeeper: EmbeddedZooKeeper, chroot: str) -> ZooKeeperConfig:
    return ZooKeeperConfig(
        servers=zookeeper.addresses, chroot=chroot, session_timeout_secs=SESSION_SECS, operation_timeout_secs=1.0
    )


def record(gateway: str) -> SupervisorRecord:
    return SupervisorRecord(
        id=SupervisorId("s1"), host="h", gateway=gateway, swarm_port=1, store=StoreId("st"), version="0"
    )


@pytest.mark.case("A21")
async def test_a_session_is_taken_up_with_what_is_ephemeral(
    zookeeper: EmbeddedZooKeeper, chroot: str, connect: Connect
) -> None:
    """If this fails, a restarted supervisor loses its workers' barriers, and so has to stop
    them."""
    other = await connect()
    before = await connect()
    await before.create("/mine", b"", ephemeral=True)
    session, created = before.session, await other.exists("/mine")
    await before.abandon()
    after = ZooKeeper(config_of(zookeeper, chroot), resume=session)
    await after.start(10.0)
    found = await other.exists("/mine")

    assert session == after.session
    assert (SessionState.CLOSED, SessionState.CONNECTED) == (before.state, after.state)
    assert created == found
    await after.close()
    assert await other.exists("/mine") is None


async def test_a_session_that_is_over_is_replaced(zookeeper: EmbeddedZooKeeper, chroot: str, connect: Connect) -> None:
    """If this fails, a supervisor that was away for long never connects again, or relies on
    barriers that it has lost."""
    before = await connect()
    session = before.session
    await expire(before)
    await before.close()
    after = ZooKeeper(config_of(zookeeper, chroot), resume=session)
    assert session == after.session
    await after.start(10.0)

    assert after.session is not None
    assert session != after.session
    assert after.generation == 1
    await after.create("/new", b"", ephemeral=True)
    await after.close()


async def test_an_abandoned_session_ends_by_itself(connect: Connect) -> None:
    """If this fails, a supervisor that never comes back keeps its barriers for good."""
    other, before = await connect(), await connect(**SHORT)
    await before.create("/mine", b"", ephemeral=True)
    await before.abandon()

    async def gone() -> bool:
        return await other.exists("/mine") is None

    assert not await gone()
    await eventually_async(gone, timeout=4 * SESSION_SECS)


async def test_a_record_taken_up_says_where_its_new_process_is(
    zookeeper: EmbeddedZooKeeper, chroot: str, connect: Connect
) -> None:
    """If this fails, other hosts look for a restarted supervisor at its old port."""
    other, before = await connect(), await connect()
    await before.ensure(paths.SUPERVISORS)
    first = Registration(before, record("old"))
    await first.start()
    await first.abandon()
    session = before.session
    await before.abandon()
    after = ZooKeeper(config_of(zookeeper, chroot), resume=session)
    await after.start(10.0)
    second = Registration(after, record("new"))
    await second.start()
    found = await other.get("/supervisors/s1")

    assert found is not None
    assert session is not None
    assert ("new", session.id) == (decode(found[0], SupervisorRecord, path="").gateway, found[1].ephemeral_owner)
    await second.close()
    await after.close()
