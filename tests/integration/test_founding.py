"""Only `ha init` founds a cluster, and nothing is written into a tree without one; on a real
ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from zookeeper_fixtures import Connect

from torrentdist.cluster import paths
from torrentdist.cluster.election.elector import Elector
from torrentdist.cluster.rebalance.group_administration import add_resource
from torrentdist.cluster.records.registration import OtherCluster, Registration
from torrentdist.cluster.records.tree_backup import make_backup, read_records, restore
from torrentdist.cluster.session.founding import found_cluster
from torrentdist.cluster.session.znode_operations import Create
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId, StoreId, SupervisorId
from torrentdist.model.records import SupervisorRecord

pytestmark = [pytest.mark.anyio, pytest.mark.case("G5")]

RECORD = SupervisorRecord(
    id=SupervisorId("s1"), host="h", gateway="http://127.0.0.1:1", swarm_port=1, store=StoreId("st"), version="0",
    slots=1, labels={}, started_at=0.0,
)  # fmt: skip


async def test_a_cluster_is_founded_once(connect: Connect) -> None:
    """If this failed, a second `ha init` would give the daemons another cluster, and end every
    worker of the first."""
    one, other = await connect(founded=False), await connect(founded=False)
    both = await asyncio.gather(found_cluster(one), found_cluster(other))
    again = await found_cluster(one)

    assert [False, True] == sorted(view.founded for view in both)
    assert {again.cluster} == {view.cluster for view in both}
    assert not again.founded


async def queue_up(zk: ZooKeeper) -> None:
    await Elector(zk, MasterId("m1"), lambda: asyncio.sleep(0, True))._place()


async def register(zk: ZooKeeper) -> None:
    await Registration(zk, RECORD)._register()


async def make_group(zk: ZooKeeper) -> None:
    await add_resource(zk, "etl", "r1")


@pytest.mark.parametrize(
    "write",
    [
        lambda zk: zk.create("/mine"),
        lambda zk: zk.create("/mine-", sequential=True, ephemeral=True),
        lambda zk: zk.ensure("/jobs/mine"),
        lambda zk: zk.commit([Create("/jobs")]),
        queue_up,
        register,
        make_group,
    ],
    ids=["create", "sequential", "ensure", "commit", "queue", "register", "group"],
)
async def test_nothing_is_written_where_there_is_no_cluster(
    connect: Connect, write: Callable[[ZooKeeper], Awaitable[object]]
) -> None:
    """If this failed, a write into a wiped tree would keep a backup from being restored."""
    zk = await connect()
    await zk.delete(paths.CLUSTER)
    for path in (*paths.PARENTS, *paths.LATER_PARENTS):
        await zk.delete(path)
    with pytest.raises(TorrentdistError) as caught:
        await write(zk)

    assert ("no_cluster", 5) == (caught.value.code, caught.value.exit_code)
    assert "ha restore" in caught.value.hint
    assert [] == await zk.children("/")


@pytest.mark.parametrize("left", [f"{paths.BUNDLES}/b", paths.RESTORING, f"{paths.GROUPS}/g/resources/r"])
async def test_no_cluster_is_founded_over_what_is_left_of_one(connect: Connect, left: str) -> None:
    """If this failed, a new cluster over the remains of another one would make its backup
    useless."""
    zk = await connect()
    await zk.ensure(left)
    await zk.delete(paths.CLUSTER)
    with pytest.raises(TorrentdistError, match=left) as caught:
        await found_cluster(zk)

    assert ("tree_not_empty", 9) == (caught.value.code, caught.value.exit_code)
    assert await zk.exists(paths.CLUSTER) is None


async def test_a_backup_comes_back_over_a_cluster_that_was_founded_by_mistake(connect: Connect, chroot: str) -> None:
    """If this failed, the lost cluster could not be restored after a hasty `ha init`."""
    lost = await connect(chroot=f"{chroot}-lost")
    await lost.create(paths.EPOCH)
    await lost.create(f"{paths.BUNDLES}/b", b"bundle")
    backup = await make_backup(lost)
    zk = await connect()
    await restore(zk, backup)
    found, _ = await read_records(zk)

    assert b"bundle" == found[f"{paths.BUNDLES}/b"]
    assert backup.cluster == (await found_cluster(zk)).cluster


async def test_a_host_is_registered_in_its_own_cluster_only(connect: Connect) -> None:
    """If this failed, a host would be given work while workers of another cluster still run on
    it."""
    zk = await connect()
    own = (await found_cluster(zk)).cluster
    at_home, stranger = Registration(zk, RECORD, cluster=own), Registration(zk, RECORD, cluster="another")
    await at_home.start()
    with pytest.raises(OtherCluster):
        await stranger.start()
    registered = await zk.exists(at_home.path)
    await at_home.close()

    assert registered is None
