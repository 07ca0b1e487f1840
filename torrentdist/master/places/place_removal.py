"""The leader's loop that takes their places from hosts that were shut out.

Always: the host's rights end first, then what it has put into its place goes, then the place; it is
nobody's place if something in it is closed to masters. From then on the host cannot renew its
lease, so its workers end by its own clock. The host's record is written anew with that, so that
ZooKeeper knows the moment.
Never: touch the place of a host that is not shut out.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Delete, NoNode, Set, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.log import get_logger
from torrentdist.master.changes.record_loop import LOOK_SECS, RecordLoop
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_session import MasterSession
from torrentdist.master.places.place_operations import NOBODY, is_shut_out
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import encode

log = get_logger()

BATCH = 500
DEEPEST = 8
"""Depth of znodes below a place down to which they are deleted."""


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
            await self._loop.attempt(paths.place(id_), partial(self._remove, id_, snapshot))
        return LOOK_SECS

    async def _remove(self, id_: str, snapshot: ClusterSnapshot) -> None:
        fence, own = self._leadership.fence(), [self._zookeeper.identity.table.own]
        place, members = paths.place(id_), paths.host_members(id_)
        host = snapshot.hosts[id_]
        lost = Set(paths.host(id_), encode(host.record), host.version)
        if await self._zookeeper.exists(place) is None:
            return  # This snapshot is older than the removal.
        await self._zookeeper.ensure(members)
        for parent in (members, place):
            await self._zookeeper.secure(parent, own)
        if all([await self._is_emptied(fence, parent) for parent in (members, place)]):
            await fence.commit([Delete(members), Delete(place), lost])
        else:  # It is closed to masters, and in the way of nothing but the next host with this id.
            log.warning("a host that was shut out has left znodes that only a super user can delete", path=place)
            await fence.commit([Set(place, NOBODY), Set(members, NOBODY), lost])
        log.info("a host that was shut out has lost its place", host=id_)

    async def _is_emptied(self, fence: Fence, parent: str, depth: int = 0) -> bool:
        """Deletes what is below a znode. Returns whether nothing is left."""
        try:
            children = [f"{parent}/{name}" for name in await self._zookeeper.children(parent) or ()]
        except TorrentdistError as error:
            if error.code != "forbidden":
                raise
            return False
        if depth > DEEPEST:
            return not children
        emptied = True
        for begin in range(0, len(children), BATCH):
            some = children[begin : begin + BATCH]
            if not await self._are_deleted(fence, some):
                emptied &= all([await self._is_emptied(fence, child, depth + 1) for child in some])
                emptied &= all([await self._are_deleted(fence, [child]) for child in some])
        return emptied

    async def _are_deleted(self, fence: Fence, some: Sequence[str]) -> bool:
        try:
            await fence.commit([Delete(path) for path in some])
        except TransactionFailed as exc:
            return len(some) == 1 and isinstance(exc.reason, NoNode)
        except TorrentdistError as error:
            if error.code != "forbidden":
                raise
            return False
        return True
