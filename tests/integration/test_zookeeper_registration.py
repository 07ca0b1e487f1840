"""Registration of a daemon against a real ZooKeeper."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from zookeeper_fixtures import Connect, TcpProxy, eventually, eventually_async, expire

from torrentdist.cluster import paths
from torrentdist.cluster.records.registration import Registration
from torrentdist.cluster.session.znode_operations import Delete, Stat
from torrentdist.cluster.session.zookeeper_session import Watch, ZooKeeper
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId, StoreId, SupervisorId
from torrentdist.model.records import SCHEMA, MasterRecord, SupervisorRecord, decode
from torrentdist.supervisor.place import znode_watch

pytestmark = pytest.mark.anyio


def master_record(id_: str, store: str, port: int = 1) -> MasterRecord:
    return MasterRecord(
        id=MasterId(id_),
        host="h",
        port=port,
        url="http://h",
        swarm_port=2,
        store=StoreId(store),
        version="0",
        started_at=0.0,
    )


async def owner_of(zk: ZooKeeper, path: str) -> int | None:
    stat = await zk.exists(path)
    return stat.ephemeral_owner if stat else None


async def test_a_supervisor_registers_and_goes(connect: Connect) -> None:
    """If this fails, supervisors are not seen, or stay seen after a clean stop."""
    zk, other = await connect(), await connect()
    zk.write_in(SCHEMA)
    record = SupervisorRecord(
        id=SupervisorId("s1"), host="h", gateway="g", swarm_port=1, store=StoreId("st"), version="0"
    )
    registration = Registration(zk, record)
    await registration.start()
    found = await other.get("/supervisors/s1")
    await registration.close()

    assert found is not None
    assert (record, zk.session_id) == (decode(found[0], SupervisorRecord, path=""), found[1].ephemeral_owner)
    assert await other.exists("/supervisors/s1") is None


async def test_those_that_had_news_together_do_not_look_together_ever_after(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, all hosts ask ZooKeeper in the same moment every ten seconds after an outage.
    With 48 hosts on full processors every link stood half empty then."""
    zk = await connect()
    ids = [SupervisorId(f"s{number}") for number in range(24)]
    hosts = [
        Registration(
            zk,
            SupervisorRecord(id=id_, host="h", gateway="g", swarm_port=1, store=StoreId(id_), version="0"),
            look_secs=2.0,
        )
        for id_ in ids
    ]
    for host in hosts:
        await host.start()
    await asyncio.sleep(0.2)
    looks: list[float] = []
    get = zk.get

    async def noted(path: str) -> tuple[bytes, Stat] | None:
        looks.append(asyncio.get_running_loop().time())
        return await get(path)

    monkeypatch.setattr(zk, "get", noted)
    for host in hosts:
        host.look_again()
    await eventually(lambda: len(looks) >= 2 * len(hosts), 30.0)
    again = looks[len(hosts) : 2 * len(hosts)]
    monkeypatch.undo()
    for host in hosts:
        await host.close()

    assert again[-1] - again[0] > 0.3  # out of the second between 0.75 and 1.25 times two


async def test_nor_do_they_look_at_the_masters_together(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, all hosts read the masters in the same moment, which costs more than a look at
    their own registration."""
    zk = await connect()
    master = Registration(zk, master_record("m1", "st"))
    await master.start()
    monkeypatch.setattr(znode_watch, "LOOK_SECS", 2.0)
    looks: list[float] = []
    exists = zk.exists

    async def noted(path: str, watch: Watch | None = None) -> Stat | None:
        if path == paths.MASTERS:
            looks.append(asyncio.get_running_loop().time())
        return await exists(path, watch)

    monkeypatch.setattr(zk, "exists", noted)
    lookouts = [znode_watch.ZnodeWatch(zk, SupervisorId(f"s{number}")) for number in range(24)]
    running = [asyncio.create_task(each.run()) for each in lookouts]
    await eventually(lambda: len(looks) >= 2 * len(lookouts), 30.0)
    again = looks[len(lookouts) : 2 * len(lookouts)]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    for each in lookouts:
        await each.close()
    await master.close()

    assert again[-1] - again[0] > 0.3  # out of the second between 0.75 and 1.25 times two


@pytest.mark.case("D13")
async def test_a_second_daemon_with_the_id_is_refused(connect: Connect) -> None:
    """If this fails, two daemons with one id overwrite each other's state."""
    zk, other = await connect(), await connect()
    door = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    there = msgspec.structs.replace(
        master_record("m", "one"), url=f"http://127.0.0.1:{door.sockets[0].getsockname()[1]}"
    )
    first, second = Registration(zk, there), Registration(other, master_record("m", "two"))
    await first.start()
    with pytest.raises(TorrentdistError) as caught:
        await second.start()
    door.close()

    assert caught.value.code == "id_taken"
    assert await owner_of(other, "/masters/m") == zk.session_id
    await first.close()


@pytest.mark.case("A27")
async def test_a_daemon_back_at_once_with_a_new_disk_waits_for_its_old_record_to_go(connect: Connect) -> None:
    """If this fails, a host whose disk is replaced quickly refuses to start, because it takes
    itself for a second daemon."""
    killed, zk = await connect(), await connect()
    before = Registration(killed, master_record("m", "old disk"))
    await before.start()
    await before.abandon()
    after = Registration(zk, master_record("m", "new disk"))
    starting = asyncio.create_task(after.start())
    await asyncio.sleep(0)
    await killed.close()
    await starting

    assert await owner_of(zk, "/masters/m") == zk.session_id
    await after.close()


@pytest.mark.case("A30")
async def test_a_daemon_restarted_at_once_replaces_its_own_record(connect: Connect) -> None:
    """If this fails, a daemon killed with -9 is refused as a second daemon until its session has
    timed out."""
    killed, zk = await connect(), await connect()
    await killed.ensure(paths.MASTERS)
    before = Registration(killed, master_record("m", "one", port=1))
    await before.start()
    await before_is_killed(before)
    after = Registration(zk, master_record("m", "one", port=2))
    await after.start()
    found = await zk.get("/masters/m")

    assert found is not None
    assert (2, zk.session_id) == (decode(found[0], MasterRecord, path="").port, found[1].ephemeral_owner)
    await after.close()


async def before_is_killed(registration: Registration) -> None:
    """Ends the process, but not its session: nothing is deleted, and nothing watches any more."""
    assert registration._task is not None
    registration._task.cancel()


@pytest.mark.case("A15")
@pytest.mark.case("D3")
async def test_it_registers_again_in_a_new_session(connect: Connect) -> None:
    """If this fails, a daemon whose session expired is never seen again."""
    zk, other = await connect(), await connect()
    registration = Registration(zk, master_record("m", "one"))
    await registration.start()
    told: list[bool] = []
    registration.on_change.append(told.append)
    old, generation = zk.session_id, zk.generation
    await expire(zk)
    await eventually(lambda: registration.registered and told == [False, True])

    assert zk.session_id != old
    assert zk.generation == generation + 1
    assert await owner_of(other, "/masters/m") == zk.session_id
    await registration.close()


async def test_it_registers_again_when_its_record_is_deleted(connect: Connect) -> None:
    """If this fails, an administrator's mistake makes a daemon invisible until its restart."""
    zk, other = await connect(), await connect()
    registration = Registration(zk, master_record("m", "one"))
    await registration.start()
    for _ in range(3):
        await other.delete("/masters/m")
        await eventually_async(lambda: owner_of(other, "/masters/m"))

    assert await owner_of(other, "/masters/m") == zk.session_id
    await registration.close()


@pytest.mark.case("D18")
async def test_it_registers_again_when_the_tree_was_removed(connect: Connect) -> None:
    """If this fails, daemons do not come back after the chroot was deleted."""
    zk, other = await connect(), await connect()
    registration = Registration(zk, master_record("m", "one"))
    await registration.start()
    await other.commit([Delete("/masters/m"), Delete(paths.MASTERS)])
    await eventually_async(lambda: owner_of(other, "/masters/m"))

    assert await owner_of(other, "/masters/m") == zk.session_id
    await registration.close()


async def test_a_flapping_connection_leaves_one_watch(connect: Connect, proxy: TcpProxy) -> None:
    """D14: if this fails, every reconnect adds a watch."""
    zk, other = await connect(servers=[proxy.address]), await connect()
    registration = Registration(zk, master_record("m", "one"))
    await registration.start()
    for _ in range(5):
        await proxy.dropped_and_back()
        await zk.wait_connected(5.0)
    await zk.sync()
    driver = zk._driver
    assert driver is not None
    watchers = driver._client._data_watchers.get(zk._full("/masters/m"), ())

    assert len(watchers) <= 1
    assert await owner_of(other, "/masters/m") == zk.session_id
    await registration.close()


async def test_an_outage_while_it_registers_is_waited_for(connect: Connect, proxy: TcpProxy) -> None:
    """If this fails, a daemon that starts while ZooKeeper is slow ends, and takes its bundles and
    workers along."""
    zk, other = await connect(servers=[proxy.address], operation_timeout_secs=0.5), await connect()
    proxy.hold_answers()
    registration = Registration(zk, master_record("m1", "st"))
    starting = asyncio.create_task(registration.start())
    done, _ = await asyncio.wait({starting}, timeout=1.5)  # longer than any call waits
    proxy.mend()
    proxy.drop()
    await asyncio.wait_for(starting, 30.0)
    owner = await owner_of(other, "/masters/m1")
    await registration.close()

    assert not done
    assert owner == zk.session_id
