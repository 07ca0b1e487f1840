"""The leader's loop that takes their places from hosts that were shut out.

Always: the host's rights end first, then what it has put into its place goes, then the place. From
then on the host cannot renew its lease, so its workers end by its own clock.
Never: touch the place of a host that is not shut out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Delete, NoNode, NotEmpty, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.log import get_logger
from torrentdist.master.changes.record_loop import LOOK_SECS, RecordLoop
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_session import MasterSession
from torrentdist.master.places.place_operations import is_shut_out

log = get_logger()

BATCH = 500


def to_remove(snapshot: ClusterSnapshot) -> Iterator[str]:
    """Yields the ids of hosts that have lost their places."""
    return (id_ for id_, user in sorted(snapshot.places.items()) if is_shut_out(snapshot, user))


class PlaceRemoval:
    def __init__(self, session: MasterSession, leadership: Leadership) -> None:
        self._zookeeper: ZooKeeper = session.zookeeper
        self._leadership = leadership
        self._loop = RecordLoop(session.mirror, "places of hosts that were shut out")

    async def run(self) -> None:
        await self._loop.run(self._step)

    async def _step(self, snapshot: ClusterSnapshot) -> float:
        for id_ in to_remove(snapshot) if self._leadership.is_leader() else ():
            await self._loop.attempt(id_, partial(self._remove, id_))
        return LOOK_SECS

    async def _remove(self, id_: str) -> None:
        fence, parents = self._leadership.fence(), [paths.host_members(id_), paths.place(id_)]
        for parent in parents:
            await self._zookeeper.secure(parent, [self._zookeeper.identity.table.own])
        for parent in parents:
            children = [f"{parent}/{name}" for name in await self._zookeeper.children(parent) or ()]
            for begin in range(0, len(children), BATCH):
                await fence.commit([Delete(child) for child in children[begin : begin + BATCH]])
        there = [parent for parent in parents if await self._zookeeper.exists(parent) is not None]
        try:
            await fence.commit([Delete(parent) for parent in there])
        except TransactionFailed as exc:
            if not isinstance(exc.reason, NoNode | NotEmpty):
                raise
        log.info("a host that was shut out has lost its place", host=id_)
