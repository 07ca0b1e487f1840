"""Reads from ZooKeeper what this host needs: its assignment and the newest removals, which it
watches, and the registered masters, which it polls.

Always: `masters()` is at least as recent as `known_at`. The masters are read directly behind each
write that renews the host's lease, so that a host with a valid lease knows every master that was
registered at that write (docs/decisions/0008-isolation.md).
Never: leave a watch on any znode but the assignment and the notice of removals, which is one for
all hosts.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence

from torrentdist.cluster import paths
from torrentdist.cluster.records.mirror import Mirror, of_supervisor
from torrentdist.cluster.session.arrival import lacks_cluster, until_founded
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.launcher.run.run_lease import NEVER
from torrentdist.log import get_logger
from torrentdist.model.backoff import Retry
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId, SupervisorId
from torrentdist.model.records import AssignmentRecord
from torrentdist.security.passes import admits, host_key

log = get_logger()

LOOK_SECS = 10.0
"""Average interval between complete readings. It varies at random, so that hosts which read at the
same moment once do not always do so."""
NO_CLUSTER_LOOK_SECS = 1.0
"""The same interval while there is no cluster, because no watch reports its founding."""
READ_SECS = 5.0
FIRST_PAUSE_SECS = 0.5
LONGEST_PAUSE_SECS = 10.0


def own_key(zk: ZooKeeper) -> str:
    """Returns what this host and the masters alone know; empty if it has no identity of its own in
    ZooKeeper."""
    identity = zk.identity
    return "" if identity.host is None else host_key(identity.credentials[0].password)


class ZnodeWatch:
    def __init__(self, zk: ZooKeeper, supervisor: SupervisorId, configured: Sequence[str] = ()) -> None:
        """`configured`: the URLs of masters that the configuration names."""
        self._configured = configured
        self._zk = zk
        self._supervisor = supervisor
        self._mirror = Mirror(zk, of_supervisor(supervisor))
        self._masters_zxid = -1
        """zxid of the newest registration change that was read."""
        self._around_due = NEVER
        self._wake = asyncio.Event()
        self.known_at = NEVER
        """When the last reading of the masters was requested (monotonic)."""
        self.on_masters_read: list[Callable[[], None]] = []
        """Called when `known_at` has changed."""

    def masters(self) -> Mapping[MasterId, str]:
        """Returns the URLs of the registered masters."""
        return {master.id: master.url for master in self._mirror.snapshot.masters.values()}

    def master_urls(self) -> list[str]:
        """Returns the registered masters, followed by those of the configuration."""
        return list(dict.fromkeys([*self.masters().values(), *self._configured]))

    def assignment(self) -> AssignmentRecord | None:
        entry = self._mirror.snapshot.assignments.get(self._supervisor)
        return None if entry is None else entry.record

    def removals(self) -> tuple[str, ...]:
        """Returns the marks of the bundles that were removed last."""
        return self._mirror.snapshot.removals

    def lacks_cluster(self) -> bool:
        return lacks_cluster(self._mirror)

    def cluster(self) -> str | None:
        """Returns the id of the cluster in the tree, or None if there is none or ZooKeeper has not
        answered yet."""
        cluster = self._mirror.snapshot.cluster
        return None if cluster is None else cluster.id

    def is_admitted(self, given: str, path: str) -> bool:
        """Whether a master's pass lets its holder read this path here."""
        cluster = self._mirror.snapshot.cluster
        shared = "" if cluster is None else cluster.announce_key
        return admits(own_key(self._zk) or shared, given, path, self._zk.server_now() or time.time())

    async def founded(self) -> str:
        """Returns the id of the cluster in the tree as soon as there is one."""
        await until_founded(self._mirror)
        return self.cluster() or await self.founded()

    @property
    def version(self) -> int:
        return self._mirror.snapshot.version

    def read_in(self) -> int | None:
        """Returns the session in which all that is known now was read; None if some of it is not
        known to be up to date."""
        return self._zk.session_id if self._mirror.fresh else None

    async def changed(self, since: int, read_in: int | None) -> None:
        """Waits for a version later than `since`, or until all was read in another session, at most
        LOOK_SECS."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECS):
                while self.version <= since and self.read_in() in (read_in, None):
                    await self._mirror.read_again()

    def recheck_masters(self) -> None:
        """Reads the masters again now."""
        self._wake.set()

    def recheck_all(self) -> None:
        """Reads everything again now."""
        self._around_due = NEVER
        self._wake.set()

    async def run(self) -> None:
        """Reads the masters and the assignment forever. Start it once there is a session."""
        with contextlib.suppress(TorrentdistError):
            await self._mirror.start(READ_SECS)
        again = Retry(FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS)
        while True:
            self._wake.clear()
            try:
                await self._look()
                again.succeeded()
            except TorrentdistError as error:
                if again.failed(error.code):
                    log.info("cannot read the registered masters", reason=error.message)
                await self._zk.pause(again.pause_secs)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._around_due - time.monotonic())):
                    await self._wake.wait()

    async def close(self) -> None:
        await self._mirror.close()

    async def _look(self) -> None:
        asked = time.monotonic()
        stat = await self._zk.exists(paths.MASTERS)
        changed = stat is None or stat.children_zxid != self._masters_zxid
        if changed or asked >= self._around_due:
            spread = random.uniform(0.75, 1.25)
            self._around_due = asked + LOOK_SECS * spread
            await self._mirror.look_again(READ_SECS)
            if self.lacks_cluster():
                self._around_due = asked + NO_CLUSTER_LOOK_SECS * spread
        if stat is not None:
            self._masters_zxid, self.known_at = stat.children_zxid, asked
            for callback in self.on_masters_read:
                callback()
