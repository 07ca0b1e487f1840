"""Founds a cluster: creates the record `/cluster` and the parents of all other records.

Always: one transaction creates everything, so that a tree holds a complete cluster or none.
Never: found a cluster in a tree that holds records, because they may belong to a cluster that a
backup can restore.
"""

import secrets

from torrentdist.cluster import paths
from torrentdist.cluster.records.tree_backup import read_records
from torrentdist.cluster.records.tree_restore import stranger
from torrentdist.cluster.session.znode_operations import Create, NodeExists, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import SCHEMA, ClusterRecord, decode, encode
from torrentdist.model.wire.ha_views import FoundedView

_ATTEMPTS = 5


async def found_at(config: ZooKeeperConfig, connect_secs: float) -> FoundedView:
    """Founds a cluster over a connection of its own."""
    zk = ZooKeeper(config)
    try:
        await zk.start(connect_secs)
        return await found_cluster(zk)
    finally:
        await zk.close()


async def check_founding(config: ZooKeeperConfig, connect_secs: float) -> FoundedView:
    """Returns what founding a cluster would report, or raises what it would refuse. Writes
    nothing."""
    zk = ZooKeeper(config)
    try:
        await zk.start(connect_secs)
        there = await zk.get(paths.CLUSTER)
        if there is not None:
            return FoundedView(cluster=decode(there[0], ClusterRecord, path=paths.CLUSTER).id, founded=False)
        await _expect_empty(zk)
        return FoundedView(cluster="", founded=True)
    finally:
        await zk.close()


async def found_cluster(zk: ZooKeeper) -> FoundedView:
    """Returns the cluster in this tree, and founds one if there is none."""
    for _ in range(_ATTEMPTS):
        there = await zk.get(paths.CLUSTER)
        if there is not None:
            return FoundedView(cluster=decode(there[0], ClusterRecord, path=paths.CLUSTER).id, founded=False)
        record = ClusterRecord(schema=SCHEMA, id=secrets.token_hex(8), announce_key=secrets.token_hex(16))
        if await _founded(zk, record):
            return FoundedView(cluster=record.id, founded=True)
    raise TorrentdistError("zookeeper_unavailable", detail="other clients keep writing to this tree")


async def _founded(zk: ZooKeeper, record: ClusterRecord) -> bool:
    """Tries to found a cluster. Returns False if another process created a part of it meanwhile."""
    await _expect_empty(zk)
    wanted = (*paths.PARENTS, *paths.LATER_PARENTS)
    parents = [path for path in wanted if await zk.exists(path) is None]
    with zk.without_cluster():
        await zk.make_chroot()
        try:
            await zk.commit([*map(Create, parents), Create(paths.CLUSTER, encode(record))])
        except TransactionFailed as exc:
            if not isinstance(exc.reason, NodeExists):
                raise
            return False
    return True


async def _expect_empty(zk: ZooKeeper) -> None:
    """Raises `tree_not_empty` if the tree holds records of a cluster, or of a restore."""
    found, _ = await read_records(zk)
    strange = paths.RESTORING if await zk.exists(paths.RESTORING) is not None else stranger(found)
    if strange is not None:
        raise TorrentdistError("tree_not_empty", path=strange)
