"""The leader's loop over grants: it makes those that the assignments need, and takes back the
others once their barriers are released.

Always: every change is a decision of grant_plan.py, committed through the fence. Grants are read
once in a term, and again after a write whose outcome is unknown: only the leader changes them.
Never: delete a barrier, except that of a host that was shut out so long ago that its lease has
ended. A watch reports when an owner has released its own.
"""

import asyncio
from collections.abc import Iterable
from functools import partial

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.records.record_index import Follower
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Delete, NodeExists, NotEmpty, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.log import get_logger
from torrentdist.master.changes.record_loop import CONCERNS_ALL, LOOK_SECS, RecordLoop
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_session import MasterSession
from torrentdist.master.places.grant_plan import GrantChange, grant_changes, grant_path, wanted_of
from torrentdist.master.places.place_operations import is_shut_out
from torrentdist.model.access.zookeeper_identity import host_of
from torrentdist.model.backoff import kind_of
from torrentdist.model.ids import SupervisorId

log = get_logger()

BATCH = 100
LONGEST_LEASE_SECS = 60.0
"""A host without a place cannot renew its lease, and no session of a host lasts longer."""
_IN_FLIGHT = 64


class GrantLoop:
    def __init__(self, session: MasterSession, leadership: Leadership, lease_secs: float = LONGEST_LEASE_SECS) -> None:
        self._session = session
        self._lease_secs = lease_secs
        self._zookeeper = session.zookeeper
        self._mirror = session.mirror
        self._leadership = leadership
        self._epoch: int | None = None
        """The term in which the grants were read; None: read them first."""
        self._granted: dict[str, str] = {}
        self._wanted: dict[str, str] = {}
        self._of_host: dict[SupervisorId, dict[str, str]] = {}
        self._takers: dict[str, dict[SupervisorId, str]] = {}
        """The same by resource, the host that was seen last at the end. While a worker moves, its
        new host may be seen before its old one."""
        self._follower = Follower()
        self._stale: set[str] = set()
        """Resources to look at. Those whose barriers are held come back when they are released."""
        self._loop = RecordLoop(session.mirror, "grants of barriers")

    async def run(self) -> None:
        await self._loop.run(self._step)

    async def _step(self, snapshot: ClusterSnapshot) -> float:
        epoch, self._epoch = self._epoch, None  # unless this step ends well
        if not (self._leadership.is_leader() and snapshot.present):
            return LOOK_SECS
        self._follow(snapshot)
        fence = self._leadership.fence()
        if epoch != fence.epoch:
            self._granted = await read_grants(self._zookeeper)
            self._stale = {*self._granted, *self._wanted}
        stale, self._stale = self._stale, set()
        changes = list(grant_changes(stale, self._wanted, self._granted))
        fresh = [change for change in changes if change.before is None]
        for begin in range(0, len(fresh), BATCH):
            await self._make_all(fence, fresh[begin : begin + BATCH])
        await self._make_each(fence, (change for change in changes if change.before is not None))
        self._epoch = fence.epoch
        return LOOK_SECS

    def _follow(self, snapshot: ClusterSnapshot) -> None:
        news = self._follower.news(snapshot)
        everybody: set[str] = {*self._of_host, *snapshot.assignments}
        hosts = everybody if news is None else {*news.assignments, *news.places}
        if news is None or news.places:
            users = set(snapshot.places.values())
            self._stale.update(resource for resource, user in self._granted.items() if user not in users)
        touched = set[str]()
        for host in map(SupervisorId, hosts):
            wanted = wanted_of(snapshot, host)
            for resource in self._of_host.pop(host, {}):
                del self._takers[resource][host]
                touched.add(resource)
            if wanted:
                self._of_host[host] = wanted
            for resource, user in wanted.items():
                self._takers.setdefault(resource, {})[host] = user
                touched.add(resource)
        for resource in touched:
            if takers := self._takers[resource]:
                self._wanted[resource] = next(reversed(takers.values()))
            else:
                del self._takers[resource]
                self._wanted.pop(resource, None)
        self._stale |= touched

    async def _make_all(self, fence: Fence, changes: list[GrantChange]) -> None:
        """Makes changes together, or one by one if one of them fails."""
        try:
            await fence.commit([op for change in changes for op in change.ops()])
        except Exception as error:
            if kind_of(error) in CONCERNS_ALL:
                raise
            await self._make_each(fence, changes)
        else:
            self._granted.update({change.resource: change.after for change in changes if change.after is not None})

    async def _make_each(self, fence: Fence, changes: Iterable[GrantChange]) -> None:
        for change in changes:
            if not await self._loop.attempt(grant_path(change.resource), partial(self._make, fence, change)):
                self._stale.add(change.resource)

    async def _make(self, fence: Fence, change: GrantChange) -> bool:
        """Makes one change, or watches what is in its way. Raises an error if it knows neither."""
        resource = change.resource
        try:
            await fence.commit(change.ops())
        except TransactionFailed as exc:
            if not isinstance(exc.reason, NotEmpty | NodeExists):
                self._keep(resource, await read_grant(self._zookeeper, resource))
                raise
            if not await self._is_freed(fence, change):
                await self._await_release(change, exc)
                return True
        self._keep(resource, change.after)
        return True

    def _keep(self, resource: str, user: str | None) -> None:
        if user is None:
            self._granted.pop(resource, None)
        else:
            self._granted[resource] = user

    async def _is_freed(self, fence: Fence, change: GrantChange) -> bool:
        """Makes a change together with the removal of the barrier in its way, if that belongs to a
        host that was shut out and cannot run the worker any more."""
        snapshot, user = self._mirror.snapshot, change.before
        if user is None or not is_shut_out(snapshot, user) or user in snapshot.places.values():
            return False
        host = await self._zookeeper.get(paths.host(str(host_of(user))))  # PlaceRemoval writes it with the loss
        left = 0.0 if host is None else self._lease_secs - (self._session.server_now() - host[1].mtime)
        if left > 0:
            asyncio.get_running_loop().call_later(left, self._released, change.resource)
            return False
        held = paths.held(grant_path(change.resource))
        try:
            await fence.commit([Delete(held), *change.ops()])
        except TransactionFailed as exc:
            log.warning("the barrier of a host that was shut out cannot be removed", path=held, reason=str(exc))
            return False
        log.info("removed the barrier of a host that was shut out", resource=change.resource, user=user)
        return True

    async def _await_release(self, change: GrantChange, refusal: TransactionFailed) -> None:
        """Watches the barrier that stands in the way: that of the grant's host, or one that a host
        without an identity of its own has taken where the grant has to be."""
        path, resource = grant_path(change.resource), change.resource
        if isinstance(refusal.reason, NodeExists):
            is_held = await self._zookeeper.exists(path, lambda: self._released(resource)) is not None
        else:  # The barrier itself may be closed to us.
            is_held = bool(await self._zookeeper.children(path, lambda: self._released(resource)))
        if not is_held:
            self._released(resource)

    def _released(self, resource: str) -> None:
        self._stale.add(resource)
        self._loop.wake()


async def read_grants(zookeeper: ZooKeeper) -> dict[str, str]:
    """Returns the resources with grants, and the users that have them."""
    found: dict[str, str] = {}
    room = asyncio.Semaphore(_IN_FLIGHT)

    async def read(resource: str) -> None:
        async with room:
            user = await read_grant(zookeeper, resource)
        if user is not None:
            found[resource] = user

    await asyncio.gather(*map(read, await zookeeper.children(paths.JOB_GROUP.barriers) or ()))
    return found


async def read_grant(zookeeper: ZooKeeper, resource: str) -> str | None:
    node = await zookeeper.get(grant_path(resource))
    return None if node is None or node[1].ephemeral_owner else node[0].decode(errors="replace")
