"""Keeps a copy of ZooKeeper's records in memory by means of watches, and hands out immutable
snapshots.

Always: one request reads a znode and sets its watch, so no change is missed. After a lost
connection everything is read again. A broken record does not stop the mirror.
Never: write.
Longer than most files: rounds, watches and snapshots share one state.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from enum import Enum, auto

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot, ReadTree, updated
from torrentdist.cluster.session.znode_operations import SessionState, Stat
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.log import get_logger
from torrentdist.model.backoff import Retry, kind_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import SupervisorId

log = get_logger()

_IN_FLIGHT = 256
_FIRST_PAUSE_SECS = 0.5
_LONGEST_PAUSE_SECS = 10.0


class MirrorPlan(msgspec.Struct, frozen=True):
    """The part of the tree to mirror."""

    records: frozenset[str]
    lists: Mapping[str, int]
    """Parents, with the number of levels to read below them: 1 for the records of their children, 2
    for those of the grandchildren too."""
    unwatched: frozenset[str] = frozenset()
    """Paths that are read, with everything below them, but not watched. They are read again on
    look_again()."""

    def roots(self) -> list[Look]:
        return [Look(path, Aspect.DATA) for path in self.records] + [Look(p, Aspect.CHILDREN) for p in self.lists]

    def is_root(self, look: Look) -> bool:
        return look.path in self.records or look.path in self.lists

    def watches(self, path: str) -> bool:
        return path not in self.unwatched and paths.parent(path) not in self.unwatched

    def below(self, parent: str, name: str) -> list[Look]:
        """Returns what to read about a new child."""
        child = f"{parent}/{name}"
        if paths.parent(parent) == paths.PLACES and name != paths.REGISTRATION:
            return []  # a host may put anything into its place
        looks = [Look(child, Aspect.DATA)]
        return [*looks, Look(child, Aspect.CHILDREN)] if self.lists.get(parent, 0) > 1 else looks


class Aspect(Enum):
    DATA = auto()
    CHILDREN = auto()


class Look(msgspec.Struct, frozen=True):
    """A part of a znode to read again. Its data and its children are read and watched
    separately."""

    path: str
    aspect: Aspect


WHOLE_CLUSTER = MirrorPlan(
    frozenset({paths.CLUSTER, paths.EPOCH}),
    {
        **dict.fromkeys((paths.MASTERS, paths.SUPERVISORS, paths.ELECTION, paths.ASSIGNMENTS), 1),
        **dict.fromkeys(paths.LATER_PARENTS, 1),
        paths.PLACES: 2,
        paths.BUNDLES: 2,
    },
)


def of_supervisor(id_: SupervisorId) -> MirrorPlan:
    """Returns the plan of a supervisor: watch its own assignment and the newest removals, and read
    the masters' records."""
    records = frozenset({paths.CLUSTER, paths.assignment(id_), paths.REMOVALS})
    return MirrorPlan(records, {paths.MASTERS: 1}, frozenset({paths.CLUSTER, paths.MASTERS}))


class Mirror:
    def __init__(self, zk: ZooKeeper, plan: MirrorPlan = WHOLE_CLUSTER) -> None:
        self._zk = zk
        self._plan = plan
        self._tree = ReadTree()
        self._stale: set[Look] = set()
        self._again: set[Look] = set()
        """Stale looks whose watch is already set."""
        self._touched: set[str] = set()
        self._vanished: set[str] = set()
        """Paths that were listed but had disappeared when they were read."""
        self._marks = 0
        """Counts how often something was marked stale. A round covers all marks made before it
        began."""
        self._dealt_with = -1
        self._connections = 0
        """Counts how often the session was connected."""
        self._wake = asyncio.Event()
        self._advanced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._complained: dict[str, str] = {}
        self._again_after = Retry(_FIRST_PAUSE_SECS, _LONGEST_PAUSE_SECS)
        self.on_change: list[Callable[[], None]] = []
        """Called after each change of the snapshot."""
        self.snapshot = ClusterSnapshot()
        self.applied_zxid = 0
        """The snapshot includes every transaction up to this zxid."""

    @property
    def connected(self) -> bool:
        return self._zk.state is SessionState.CONNECTED

    @property
    def fresh(self) -> bool:
        """Whether the session is connected and nothing is known to be out of date."""
        return self.connected and self._dealt_with >= self._marks

    async def start(self, timeout: float) -> ClusterSnapshot:
        """Reads everything once, and follows changes from then on."""
        if self._task is None:
            self._zk.on_state.append(self._on_state)
            self._mark(self._plan.roots())
            self._task = asyncio.create_task(self._run(), name="mirror")
        await self._until_dealt_with(self._marks, timeout)
        return self.snapshot

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            self._zk.on_state.remove(self._on_state)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def read_again(self) -> None:
        """Waits for the end of the next round of reading."""
        await self._advanced.wait()

    async def changed(self, since: int) -> ClusterSnapshot:
        """Waits for a snapshot with a later version than `since`."""
        while self.snapshot.version <= since:
            await self._advanced.wait()
        return self.snapshot

    async def wait_for(
        self, predicate: Callable[[ClusterSnapshot], bool], timeout: float, what: str = "a change in the cluster"
    ) -> ClusterSnapshot:
        """Waits for a snapshot that satisfies `predicate`. Raises `timed_out`."""
        try:
            async with asyncio.timeout(timeout):
                while not predicate(self.snapshot):
                    await self._advanced.wait()
        except TimeoutError:
            raise TorrentdistError("timed_out", what=what, seconds=timeout) from None
        return self.snapshot

    async def sync(self, timeout: float) -> ClusterSnapshot:
        """Returns a snapshot that includes everything acknowledged to any client before this
        call."""
        try:
            async with asyncio.timeout(timeout):
                zxid = await self._zk.sync()
                await self._until_dealt_with(self._marks, timeout)
                self.applied_zxid = max(self.applied_zxid, zxid)
        except TimeoutError:
            raise TorrentdistError("zookeeper_unavailable", detail="no current view of the records") from None
        return self.snapshot

    async def sync_to(self, zxid: int, timeout: float) -> ClusterSnapshot:
        """Returns a snapshot that includes transaction `zxid`. Asks ZooKeeper only if the current
        one does not."""
        return self.snapshot if self.fresh and self.applied_zxid >= zxid else await self.sync(timeout)

    async def incomplete(self) -> TorrentdistError | None:
        """Returns why a record that is missing here may exist elsewhere, or None if the tree is
        complete."""
        if await self._zk.exists(paths.RESTORING) is not None:
            return TorrentdistError("not_ready", detail="a backup is being restored")
        return None if self.snapshot.present else TorrentdistError("no_cluster", chroot=self._zk.chroot)

    # following

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._connections += 1
            self._mark(self._everything())

    def _everything(self) -> list[Look]:
        known = [Look(path, Aspect.DATA) for path in self._tree.nodes]
        known += [Look(path, Aspect.CHILDREN) for path in self._tree.children]
        return [*self._plan.roots(), *known]

    async def look_again(self, timeout: float) -> None:
        """Reads everything again: paths that are not watched, and the others in case a watch was
        lost."""
        looks = [look for look in self._everything() if look not in self._stale]
        self._mark(looks)
        self._again.update(looks)
        await self._until_dealt_with(self._marks, timeout)

    def _mark(self, looks: Iterable[Look]) -> None:
        looks = list(looks)
        self._stale.update(looks)
        self._again.difference_update(looks)
        self._marks += 1
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._round()
                self._again_after.succeeded()
            except TorrentdistError as exc:
                if self._again_after.failed(exc.code):
                    log.info("the mirror waits for ZooKeeper", reason=exc.message)
                await self._recover()
            except Exception as exc:
                if self._again_after.failed(kind_of(exc)):
                    log.exception("the mirror reads everything again")
                self._stale.update(self._plan.roots())
                await self._recover()

    async def _recover(self) -> None:
        self._wake.set()
        await self._zk.pause(self._again_after.pause_secs)

    async def _round(self) -> None:
        """Reads everything stale and all children that this reveals, then publishes one new
        snapshot. After a new connection it waits for the next round, which reads everything: the
        tree may be another one."""
        marks, connections = self._marks, self._connections
        room = asyncio.Semaphore(_IN_FLIGHT)
        work, self._stale = self._stale, set()
        while work:
            left, found = set(work), set[Look]()
            try:
                await _all(self._look(look, room, left, found) for look in work)
            except Exception:
                self._stale |= left | found
                raise
            work = found
        if connections != self._connections:
            return
        zxid = self._zk.last_zxid
        self._publish()
        if not self._stale:
            self.applied_zxid = zxid
        self._dealt_with = marks
        advanced, self._advanced = self._advanced, asyncio.Event()
        advanced.set()

    async def _look(self, look: Look, room: asyncio.Semaphore, left: set[Look], found: set[Look]) -> None:
        async with room:
            if look.aspect is Aspect.DATA:
                await self._read_data(look)
            else:
                found.update(await self._read_children(look))
        left.discard(look)

    async def _read_data(self, look: Look) -> None:
        path = look.path
        # A leader's keep-alive rewrites its election znode all the time with the same data.
        watch = None if paths.parent(path) == paths.ELECTION else self._watch(look)
        node = await self._get(path, watch)
        while node is None and self._plan.is_root(look):
            if await self._zk.exists(path, watch) is None:
                break
            node = await self._zk.get(path, watch)
        self._touched.add(path)
        if node is None:
            self._tree.nodes.pop(path, None)
            self._vanished.add(path)
        else:
            self._tree.nodes[path] = node
            self._vanished.discard(path)

    async def _get(self, path: str, watch: Callable[[], None] | None) -> tuple[bytes, Stat] | None:
        """Reads a znode. One that a host has closed to us counts as absent, and stops nobody else's
        reading."""
        try:
            return await self._zk.get(path, watch)
        except TorrentdistError as exc:
            if exc.code != "forbidden" or paths.name(path) != paths.REGISTRATION:
                raise
            self._complain(path, exc)
            return None

    async def _read_children(self, look: Look) -> list[Look]:
        path, watch = look.path, self._watch(look)
        names = await self._zk.children(path, watch)
        while names is None and self._plan.is_root(look):
            if await self._zk.exists(path, watch) is None:
                break
            names = await self._zk.children(path, watch)
        before, now = self._tree.children.get(path, frozenset()), frozenset(names or ())
        self._touched.add(path)
        changed = before ^ now
        gone = {f"{path}/{name}" for name in changed & before}
        for child in gone:
            self._tree.drop(child)
        self._touched |= gone
        if gone and self._vanished:
            self._vanished = {p for p in self._vanished if p not in gone and paths.parent(p) not in gone}
        if names is None:
            self._tree.children.pop(path, None)
            self._vanished.add(path)
        else:
            self._tree.children[path] = now
            self._vanished.discard(path)
        # Include children that had disappeared when they were read: they are back, and not
        # watched.
        again = {paths.name(gone) for gone in self._vanished if paths.parent(gone) == path} & now
        return [
            look
            for name in (changed & now) | again
            if paths.is_name(name)
            for look in self._plan.below(path, name)
            if name not in before or not self._known(look)
        ]

    def _known(self, look: Look) -> bool:
        return look.path in (self._tree.nodes if look.aspect is Aspect.DATA else self._tree.children)

    def _watch(self, look: Look) -> Callable[[], None] | None:
        """Returns the callback that watches a look, or None if no watch is needed or it is already
        set."""
        if look in self._again or not self._plan.watches(look.path):
            self._again.discard(look)
            return None
        return lambda: self._mark([look]) if self._task else None

    def _publish(self) -> None:
        touched, self._touched, before = self._touched, set(), self.snapshot
        self.snapshot = updated(before, self._tree, touched, self._complain)
        if self.snapshot.present and not before.present:
            self._zk.end_pauses()  # Callers may be waiting for a cluster.
        if self.snapshot.present:
            self._zk.write_in(self.snapshot.schema)
        if self.snapshot.version != before.version:
            for tell in self.on_change:
                tell()

    def _complain(self, path: str, error: TorrentdistError) -> None:
        if self._complained.get(path) != error.message:
            self._complained[path] = error.message
            log.warning("a record is skipped", path=path, reason=error.message)

    async def _until_dealt_with(self, marks: int, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                while self._dealt_with < marks:
                    await self._advanced.wait()
        except TimeoutError:
            raise TorrentdistError("zookeeper_unavailable", detail="the records could not be read in time") from None


async def _all(reads: Iterable[Coroutine[None, None, None]]) -> None:
    """Does all of these. Raises the first failure, once all others have ended.

    Not a TaskGroup: in the first releases of Python 3.11, such as Debian 12's, one with a failure
    leaves its task marked as cancelled, and the next timeout would end the mirror.
    """
    tasks = [asyncio.create_task(read) for read in reads]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
