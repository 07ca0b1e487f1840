"""A backup of a real tree, restored into another one."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from zookeeper_fixtures import Connect, eventually

from torrentdist.cluster import paths
from torrentdist.cluster.election.elector import Elector
from torrentdist.cluster.records.tree_backup import make_backup, read_records, restore
from torrentdist.cluster.session.znode_operations import Create, NodeExists, Set
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.backup import Backup
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId
from torrentdist.model.records import ClusterRecord, decode, encode

pytestmark = pytest.mark.anyio

BUNDLES = 40


async def populated(connect: Connect, chroot: str, epoch: int) -> ZooKeeper:
    zk = await connect(chroot=f"{chroot}-old")
    for path in paths.PARENTS:
        await zk.ensure(path)
    await zk.set(paths.CLUSTER, encode(ClusterRecord(id="c", announce_key="k")))
    await zk.create(paths.EPOCH)
    await zk.commit([Set(paths.EPOCH, b"") for _ in range(epoch)])
    await zk.commit([Create(f"{paths.BUNDLES}/b{n}", b"bundle") for n in range(BUNDLES)])
    await zk.commit([Create(f"{paths.BUNDLES}/b{n}/m1", b"replica") for n in range(BUNDLES)])
    await zk.create(paths.failover_prefix(), b"then", sequential=True)
    await zk.create(f"{paths.MASTERS}/m1", b"alive", ephemeral=True)
    await zk.create(f"{paths.ELECTION}/x-", b"m1", ephemeral=True, sequential=True)
    return zk


async def test_every_persistent_record_comes_back_and_the_epoch_is_higher(connect: Connect, chroot: str) -> None:
    """If this fails, a restored cluster lacks bundles, or an earlier leader can still change it."""
    old = await populated(connect, chroot, epoch=1203)
    backup = await make_backup(old)
    new = await connect(founded=False)
    view = await restore(new, backup)
    before, _ = await read_records(old)
    after, epoch = await read_records(new)
    kept = {path for path in before if paths.parent(path) not in (paths.FAILOVERS, "/")}

    assert {path: after[path] for path in kept} == {path: before[path] for path in kept}
    assert "c" == decode(after[paths.CLUSTER], ClusterRecord, path=paths.CLUSTER).id
    assert [data for path, data in after.items() if paths.parent(path) == paths.FAILOVERS] == [b"then"]
    assert (backup.epoch, view.epoch) == (1203, epoch)
    assert epoch > 1203
    assert await new.children(paths.MASTERS) == []


@pytest.mark.case("D18")
async def test_who_leads_the_empty_tree_meanwhile_is_deposed_and_leads_again_above(
    connect: Connect, chroot: str
) -> None:
    """If this fails, a restore beside running masters leaves a leader that can never change
    anything."""
    backup = await make_backup(await populated(connect, chroot, epoch=40))
    zk = await connect()
    elector = Elector(zk, MasterId("m1"), lambda: asyncio.sleep(0, True), pause_secs=0.1)
    await elector.queue_up()
    await eventually(elector.is_leader)
    fence = elector.fence()
    await restore(zk, backup)
    with pytest.raises(TorrentdistError) as caught:
        await fence.commit([Create("/by-the-deposed")])
    await eventually(lambda: elector.is_leader() and elector.fence().epoch > 40)
    await elector.fence().commit([Create("/by-the-new")])
    await elector.leave_queue()

    assert caught.value.code == "leadership_lost"
    cluster = decode((await read_records(zk))[0][paths.CLUSTER], ClusterRecord, path=paths.CLUSTER)
    assert "c" == cluster.id


async def test_a_daemon_that_makes_a_parent_meanwhile_is_no_obstacle(connect: Connect, chroot: str) -> None:
    """If this fails, a restore beside running masters is sometimes refused, because a master
    created a znode first."""
    old = await populated(connect, chroot, epoch=3)
    await old.ensure(paths.JOBS)
    await old.create(f"{paths.JOBS}/j", b"job")
    backup = await make_backup(old)
    new, daemon = await connect(), await connect()
    await new.delete(paths.JOBS)
    read = asyncio.create_task(restore(new, backup))
    while not read.done() and await daemon.exists(f"{paths.BUNDLES}/b0") is None:
        with contextlib.suppress(NodeExists):
            await daemon.create(paths.JOBS)  # as a new leader does, at any moment
    await read

    assert (await read_records(new))[0][f"{paths.JOBS}/j"] == b"job"


async def test_a_znode_without_a_number_among_the_failovers_is_no_obstacle(connect: Connect, chroot: str) -> None:
    """If this fails, an operator who left a note there cannot restore the cluster beside it."""
    backup = await make_backup(await populated(connect, chroot, epoch=3))
    new = await connect()
    await new.create(f"{paths.FAILOVERS}/note", b"a note")
    await new.create(paths.failover_prefix(), b"now", sequential=True)
    await restore(new, backup)
    after, _ = await read_records(new)

    assert [b"then", b"a note", b"now"] == [
        after[path] for path in sorted(after) if path.startswith(paths.FAILOVERS + "/")
    ]


async def refusal(zk: ZooKeeper, backup: Backup) -> str:
    """Returns why the backup is not restored. Nothing has changed then."""
    before = await read_records(zk)
    with pytest.raises(TorrentdistError) as caught:
        await restore(zk, backup)

    assert (caught.value.code, caught.value.exit_code) == ("tree_not_empty", 9)
    assert await read_records(zk) == before
    return caught.value.message


async def test_it_is_refused_where_a_cluster_lives(connect: Connect, chroot: str) -> None:
    """If this fails, a restore deposes the leader of a living cluster, or takes it back to the day
    of the backup."""
    old = await populated(connect, chroot, epoch=1)
    backup = await make_backup(old)
    zk = await connect()
    await restore(zk, backup)

    assert "the cluster of this backup itself" in await refusal(old, backup)
    assert "the cluster of this backup itself" in await refusal(zk, backup)
    await zk.delete(paths.CLUSTER)
    assert f"{paths.BUNDLES}/b0" in await refusal(zk, backup)


async def test_one_that_was_interrupted_is_run_again_and_another_backup_is_refused(
    connect: Connect, chroot: str
) -> None:
    """If this fails, an operator whose restore was interrupted has to delete the tree, or mixes two
    backups."""
    old = await populated(connect, chroot, epoch=1)
    backup = await make_backup(old)
    await old.create(f"{paths.BUNDLES}/later", b"bundle")
    later = await make_backup(old)
    zk = await connect()
    for interrupted in range(2):
        running = asyncio.create_task(restore(zk, backup))
        await eventually_exists(zk, paths.RESTORING if not interrupted else f"{paths.BUNDLES}/b0")
        running.cancel()
        await asyncio.wait({running})
    other = await refusal(zk, later)
    view = await restore(zk, backup)
    after, epoch = await read_records(zk)

    assert "another backup" in other
    assert (view.epoch, view.epoch > backup.epoch) == (epoch, True)
    assert {f"{paths.BUNDLES}/b{n}/m1" for n in range(BUNDLES)} <= after.keys()
    assert await zk.exists(paths.RESTORING) is None


async def eventually_exists(zk: ZooKeeper, path: str) -> None:
    async with asyncio.timeout(30.0):
        while await zk.exists(path) is None:
            pass


@pytest.mark.case("F1")
async def test_a_backup_holds_no_key_and_a_restore_makes_a_new_one(connect: Connect, chroot: str) -> None:
    """A backup that is copied to a share gives everybody who reads it a place in every swarm."""
    backup = await make_backup(await populated(connect, chroot, epoch=3))
    zk = await connect()
    await restore(zk, backup)
    (saved,) = (node.data for node in backup.nodes if node.path == paths.CLUSTER)
    there = decode((await read_records(zk))[0][paths.CLUSTER], ClusterRecord, path=paths.CLUSTER)

    assert "" == decode(saved, ClusterRecord, path=paths.CLUSTER).announce_key
    assert "c" == there.id
    assert len(there.announce_key) == 32
