"""Writes the replica records of this master into ZooKeeper.

Always: a record is written in one transaction that checks that the bundle's record is as it was
when the plan was made.
"""

from __future__ import annotations

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import BundleEntry
from torrentdist.cluster.session.znode_operations import Check, Create, Delete, Op, Set, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.log import get_logger
from torrentdist.model.ids import BundleId, Digest, MasterId, StoreId
from torrentdist.model.records import ReplicaRecord, encode

log = get_logger()


class ReplicaRecords:
    """`store` is the id of this master's store."""

    def __init__(self, me: MasterId, store: StoreId, zookeeper: ZooKeeper) -> None:
        self.me = me
        self.store = store
        self._zookeeper = zookeeper

    async def publish(self, entry: BundleEntry, digest: Digest) -> bool:
        """Records that this master holds the bundle.

        Returns False if the bundle's record has changed.
        """
        path = paths.replica(entry.record.id, self.me)
        data = encode(ReplicaRecord(master=self.me, store=self.store, digest=digest))
        write: Op = Set(path, data) if self.me in entry.replicas else Create(path, data)
        return await self._commit(Check(paths.bundle(entry.record.id), entry.version), write)

    async def withdraw(self, bundle: BundleId) -> bool:
        """Removes this master's record. Returns False if it is gone already."""
        return await self._commit(Delete(paths.replica(bundle, self.me)))

    async def _commit(self, *ops: Op) -> bool:
        try:
            await self._zookeeper.commit(ops)
        except TransactionFailed as exc:
            log.debug("the record changed meanwhile", why=str(exc))
            return False
        return True
