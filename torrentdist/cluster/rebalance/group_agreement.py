"""Makes all members of a resource group use the same algorithm: otherwise one could start work on a
resource that another has not stopped using.
"""

from torrentdist.cluster import paths
from torrentdist.cluster.paths import GroupPaths
from torrentdist.cluster.rebalance.group_records import Algorithm, GroupRecord
from torrentdist.cluster.session.znode_operations import BadVersion, NodeExists, NoNode
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import decode, encode


async def agree_on(zk: ZooKeeper, group: GroupPaths, algorithm: Algorithm | None) -> GroupRecord:
    """Returns the group's record, and creates it if there is none. The first member that names an
    algorithm sets it for all members."""
    await zk.ensure(paths.GROUPS)
    while True:
        found = await zk.get(group.root)
        try:
            if found is None:
                await zk.create(group.root, encode(GroupRecord(algorithm=algorithm)))
                continue
            record = decode(found[0], GroupRecord, path=group.root) if found[0] else GroupRecord()
            if record.algorithm is None and algorithm is not None:
                await zk.set(group.root, encode(GroupRecord(algorithm=algorithm)), found[1].version)
                continue
        except (NodeExists, NoNode, BadVersion):
            continue
        if algorithm not in (None, record.algorithm):
            chosen = record.algorithm.value if record.algorithm else None
            raise TorrentdistError(
                "config_invalid",
                origin=f"resource group {group.name}",
                detail=f"its members use {chosen}, not {algorithm.value if algorithm else None}",
            )
        return record
