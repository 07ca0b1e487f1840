"""Reads every persistent record from ZooKeeper, and restores a backup into an empty tree.

Always: the epoch of a restored tree exceeds every epoch of the original cluster, so that no former
leader can change the tree. The transaction that completes the restore deposes any leader elected
meanwhile. An interrupted restore leaves its marker in the tree and can be repeated.
Never: overwrite the records of others. Never write the key of the tracker URLs into a backup. A
restored cluster gets a new one.
"""

import asyncio
import contextlib
import secrets
import time

from torrentdist.cluster import paths
from torrentdist.cluster.records.tree_restore import (
    cluster_record,
    creations,
    history,
    left_record,
    marker,
    obstacle,
    occupant,
    passing,
    sorted_nodes,
    with_announce_key,
)
from torrentdist.cluster.session.znode_operations import Create, Delete, NodeExists, Op, Set, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model import records
from torrentdist.model.backup import Backup
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import ClusterRecord, decode
from torrentdist.model.wire.ha_views import RestoreView

_IN_FLIGHT = 64
_RAISES = 500
_LATER_EPOCHS = 1000
"""How many epochs the lost cluster may have had since the backup. Workers' fencing numbers must
never decrease."""
_ATTEMPTS = 20


async def read_records(zk: ZooKeeper) -> tuple[dict[str, bytes], int]:
    """Returns every persistent record by its path, and the epoch."""
    found: dict[str, bytes] = {}
    epoch = 0
    room = asyncio.Semaphore(_IN_FLIGHT)

    async def step(path: str) -> list[str]:
        nonlocal epoch
        async with room:
            node = await zk.get(path)
            if node is None or node[1].ephemeral_owner:
                return []
            if path == paths.EPOCH:
                epoch = node[1].version
            if path != paths.ROOT:
                found[path] = node[0]
            names = await zk.children(path) or []
        below = [f"{path.rstrip('/')}/{name}" for name in names]
        return [child for child in below if not passing(child)]

    level = [paths.ROOT]
    while level:
        level = [child for children in await asyncio.gather(*map(step, level)) for child in children]
    return found, epoch


async def make_backup(zk: ZooKeeper) -> Backup:
    zxid = await zk.sync()
    found, epoch = await read_records(zk)
    if paths.CLUSTER not in found:
        raise TorrentdistError("not_ready", detail="the tree holds no cluster to back up")
    cluster = decode(found[paths.CLUSTER], ClusterRecord, path=paths.CLUSTER)
    found[paths.CLUSTER] = with_announce_key(found[paths.CLUSTER], "")  # a backup lies around for years
    return Backup(cluster=cluster.id, epoch=epoch, zxid=zxid, made_at=time.time(), nodes=sorted_nodes(found))


async def restore(zk: ZooKeeper, backup: Backup) -> RestoreView:
    """Restores a backup. Raises `tree_not_empty` unless the tree holds only records that daemons
    write by themselves, or records of an interrupted run of the same backup."""
    began = time.monotonic()
    zk.write_in(records.SCHEMA)  # Write the backup's records unchanged.
    with zk.without_cluster():
        epoch = await _restore(zk, backup)
    return RestoreView(
        cluster=backup.cluster,
        epoch=epoch,
        records=len(backup.nodes),
        seconds=round(time.monotonic() - began, 3),
    )


async def check_restore(zk: ZooKeeper, backup: Backup) -> RestoreView:
    """Returns what a restore would report, or raises what it would refuse. Writes nothing."""
    there, epoch = await read_records(zk)
    found = await zk.get(paths.RESTORING)
    strange = occupant(there, backup) if found is None else obstacle(there, backup)
    if found is not None and found[0] != marker(backup):
        strange = f"a part of another backup ({paths.RESTORING})"
    if strange is not None:
        raise TorrentdistError("tree_not_empty", path=strange)
    later = max(epoch, backup.epoch + _LATER_EPOCHS) + 1
    return RestoreView(cluster=backup.cluster, epoch=later, records=len(backup.nodes), seconds=0.0)


async def _restore(zk: ZooKeeper, backup: Backup) -> int:
    await zk.make_chroot()
    await _begin(zk, backup)
    for _ in range(_ATTEMPTS):
        if await _filled(zk, backup):
            return await _complete(zk, backup)
    raise TorrentdistError("not_ready", detail="daemons write faster than the tree can be filled")


async def _begin(zk: ZooKeeper, backup: Backup) -> None:
    """Puts this backup's marker into the tree, or finds it there."""
    while (found := await zk.get(paths.RESTORING)) is None:
        there, _ = await read_records(zk)
        strange = occupant(there, backup)
        if strange is not None:
            raise TorrentdistError("tree_not_empty", path=strange)
        with contextlib.suppress(NodeExists):
            await zk.create(paths.RESTORING, marker(backup))
    if found[0] != marker(backup):
        raise TorrentdistError("tree_not_empty", path=f"a part of another backup ({paths.RESTORING})")


async def _filled(zk: ZooKeeper, backup: Backup) -> bool:
    """Writes the records. Returns False if a running daemon created one of the parents
    meanwhile."""
    there, _ = await read_records(zk)
    strange = obstacle(there, backup)
    if strange is not None:
        raise TorrentdistError("tree_not_empty", path=strange)
    for path in paths.PARENTS:
        await zk.ensure(path)
    there, _ = await read_records(zk)
    try:
        for batch in creations(backup, there):
            await zk.commit(batch)
    except TransactionFailed as exc:
        if isinstance(exc.reason, NodeExists):
            return False
        raise TorrentdistError("zookeeper_unavailable", detail=str(exc)) from exc
    return True


async def _complete(zk: ZooKeeper, backup: Backup) -> int:
    """Writes history, cluster and epoch in one transaction, which deposes any leader. Returns the
    epoch.

    Repeats the transaction if the election of a master raises the epoch meanwhile.
    """
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(TransactionFailed):
            if await zk.exists(paths.RESTORING) is None:  # Another run of this backup was faster.
                return (await read_records(zk))[1]
            version = await _raise_to(zk, backup.epoch + _LATER_EPOCHS)
            ops: list[Op] = [Set(paths.EPOCH, left_record(backup), version)]
            exists = await zk.exists(paths.CLUSTER) is not None
            data = with_announce_key(cluster_record(backup), secrets.token_hex(16))
            ops.append(Set(paths.CLUSTER, data) if exists else Create(paths.CLUSTER, data))
            ops += await _history(zk, backup)
            ops.append(Delete(paths.RESTORING))
            ops += [Delete(paths.election_node(name)) for name in await zk.children(paths.ELECTION) or ()]
            await zk.commit(ops)
            return version + 1
    raise TorrentdistError("not_ready", detail="masters are elected faster than the restore can be completed")


async def _raise_to(zk: ZooKeeper, epoch: int) -> int:
    """Raises the version of /epoch to at least `epoch`, one step at a time. Returns the version."""
    while (found := await zk.exists(paths.EPOCH)) is None:
        with contextlib.suppress(NodeExists):
            await zk.create(paths.EPOCH)
    version = found.version
    while version < epoch:
        steps = min(_RAISES, epoch - version)
        await zk.commit([Set(paths.EPOCH, b"", version + n) for n in range(steps)])
        version += steps
    return version


async def _history(zk: ZooKeeper, backup: Backup) -> list[Op]:
    """Returns operations that order the backup's failovers before later ones.

    ZooKeeper numbers these records, so all of them are written again.
    """
    names = sorted(await zk.children(paths.FAILOVERS) or (), key=lambda name: paths.sequence_of(name) or 0)
    since = [node[0] for name in names if (node := await zk.get(paths.failover(name))) is not None]
    before = history(backup)
    since = [record for record in since if record not in before]
    prefix = paths.failover_prefix()
    again: list[Op] = [Create(prefix, data, sequential=True) for data in (*before, *since)]
    return [*(Delete(paths.failover(name)) for name in names), *again]
