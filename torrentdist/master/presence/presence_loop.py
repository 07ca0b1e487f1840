"""The leader's loop over what the cluster remembers of its masters and supervisors.

Always: every change is a decision of presence_plan.py, committed through the fence. It writes when
somebody registers, leaves, falls silent or is forgotten, and never for a heartbeat. A damaged
record of one host holds up no other.
"""

from collections.abc import Callable

from torrentdist.cluster.records.record_index import Follower
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.changes.record_loop import RecordLoop
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_session import MasterSession
from torrentdist.master.presence.presence_plan import Heard, next_look, presence_ops
from torrentdist.model.ids import SupervisorId

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
        self._loop = RecordLoop(session.mirror, "what is remembered of hosts")

    async def run(self) -> None:
        await self._loop.run(self._step)

    async def _step(self, snapshot: ClusterSnapshot) -> float:
        follower, self._follower = self._follower, Follower()  # unless this step ends well
        if not (self._leadership.is_leader() and snapshot.present):
            return LOOK_SECS
        now, news = self._session.server_now(), follower.news(snapshot)
        wait, heard = next_look(snapshot, now, self._forget_after), self._hear(snapshot, now)
        before, self._unheard = self._unheard, frozenset(heard.unheard)
        changed = news is None or any((news.supervisors, news.masters, news.presence, news.hosts))
        if changed or wait <= 0 or before != self._unheard:
            ops = presence_ops(snapshot, heard, now, self._forget_after)
            if not await self._loop.commit_each(self._leadership.fence(), ops, BATCH):
                return LOOK_SECS
        self._follower = follower
        return min(LOOK_SECS, max(0.1, wait))
