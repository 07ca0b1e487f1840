"""The leader's loop over what the cluster remembers of its masters and supervisors.

Always: every change is a decision of presence_plan.py, committed through the fence. It writes when
somebody registers, leaves or is forgotten, and never for a heartbeat.
"""

import asyncio
import contextlib
from collections.abc import Collection

from torrentdist.cluster.records.record_index import Follower
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import TransactionFailed, fitting
from torrentdist.log import get_logger
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_session import MasterSession
from torrentdist.master.presence.presence_plan import next_look, presence_ops
from torrentdist.model.backoff import Retry
from torrentdist.model.errors import TorrentdistError

log = get_logger()

LOOK_SECS = 60.0
BATCH = 500


class PresenceLoop:
    """`said_goodbye`: the daemons that told this master that they stop."""

    def __init__(
        self, session: MasterSession, leadership: Leadership, said_goodbye: Collection[str], forget_after: float
    ) -> None:
        self._session = session
        self._mirror = session.mirror
        self._leadership = leadership
        self._said_goodbye = said_goodbye
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
        wait = next_look(snapshot, now, self._forget_after)
        if news is None or wait <= 0 or any((news.supervisors, news.masters, news.presence, news.hosts)):
            ops = presence_ops(snapshot, self._said_goodbye, now, self._forget_after)
            while ops:
                count = fitting(ops, BATCH)
                await self._leadership.fence().commit(ops[:count])
                del ops[:count]
        return min(LOOK_SECS, max(0.1, wait))
