"""The leader's loop over what the cluster remembers of its masters and supervisors.

Always: every change is a decision of presence_plan.py, committed through the fence. It writes when
somebody registers, leaves, falls silent or is forgotten, and never for a heartbeat.
"""

import asyncio
import contextlib
from collections.abc import Callable

from torrentdist.cluster.records.record_index import Follower
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import TransactionFailed, fitting
from torrentdist.log import get_logger
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_session import MasterSession
from torrentdist.master.presence.presence_plan import Heard, next_look, presence_ops
from torrentdist.model.backoff import Retry
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import SupervisorId

log = get_logger()

LOOK_SECS = 5.0
"""How often it looks who has fallen silent."""
BATCH = 500


class PresenceLoop:
    """`hear`: returns what this master alone has heard; it gets ZooKeeper's time."""

    def __init__(
        self,
        session: MasterSession,
        leadership: Leadership,
        hear: Callable[[ClusterSnapshot, float], Heard],
        forget_after: float,
    ) -> None:
        self._session = session
        self._mirror = session.mirror
        self._leadership = leadership
        self._hear = hear
        self._unheard: frozenset[SupervisorId] = frozenset()
        """The supervisors that were silent at the last look."""
        self._forget_after = forget_after
        self._follower = Follower()
        self._trouble = Retry(0.1, 10.0)

    async def run(self) -> None:
        while True:
            snapshot, wait = self._mirror.snapshot, LOOK_SECS
            try:
                if self._leadership.is_leader() and snapshot.present:
                    wait = await self._round(snapshot)
                else:
                    self._follower = Follower()
                self._trouble.succeeded()
            except (TorrentdistError, TransactionFailed) as error:
                self._follower = Follower()
                if self._trouble.failed(getattr(error, "code", "refused")):
                    log.info("what is remembered of hosts waits", reason=str(error))
                wait = self._trouble.pause_secs
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._mirror.changed(snapshot.version)

    async def _round(self, snapshot: ClusterSnapshot) -> float:
        """Does what is due. Returns the seconds after which to look again though no record
        changes."""
        now, news = self._session.server_now(), self._follower.news(snapshot)
        wait, heard = next_look(snapshot, now, self._forget_after), self._hear(snapshot, now)
        before, self._unheard = self._unheard, frozenset(heard.unheard)
        changed = news is None or any((news.supervisors, news.masters, news.presence, news.hosts))
        if changed or wait <= 0 or before != self._unheard:
            ops = presence_ops(snapshot, heard, now, self._forget_after)
            while ops:
                count = fitting(ops, BATCH)
                await self._leadership.fence().commit(ops[:count])
                del ops[:count]
        return min(LOOK_SECS, max(0.1, wait))
