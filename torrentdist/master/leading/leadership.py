"""This master's place in the election: it queues, passes the gate, leads, and hands over.

Always: a master that lacks a live job's bundle changes nothing and gives way. There is one
exception: it marks bundles as lost that no peer has any more, because they would keep every master
from leading. Every change of the leader goes through the fence of its term.
Never: decide what a leader does for the records. leader_rounds.py does it, and leader_duties.py
decides.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection

from torrentdist.cluster import paths
from torrentdist.cluster.election.elector import Elector
from torrentdist.cluster.election.epoch import place_of
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.election.term import Term, queue
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.arrival import lacks_cluster
from torrentdist.cluster.session.znode_operations import SessionState, TransactionFailed
from torrentdist.log import get_logger
from torrentdist.master.leading import gate
from torrentdist.master.leading.election_events import Elections
from torrentdist.master.leading.leader_rounds import Copies, LeaderRounds, mark_lost
from torrentdist.master.leading.roles import state_of
from torrentdist.master.master_session import MasterSession
from torrentdist.model.configuration.config import ReplicationConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import Fact, LeaderLost
from torrentdist.model.ids import BundleId, MasterId
from torrentdist.model.records import FailoverRecord, decode
from torrentdist.model.wire.ha_views import LeaderView, MasterState

log = get_logger()

RECENT = 20
"""How many of the last failovers are kept at hand."""
CATCH_UP_LOOK_SECS = 10.0
"""How long a master that catches up waits to look again if no record changes."""


class Leadership:
    def __init__(
        self,
        session: MasterSession,
        config: ReplicationConfig,
        copies: Copies,
        rounds: LeaderRounds,
        tell: Callable[[Fact], None],
    ) -> None:
        """`tell` gets the facts for the log of events."""
        self.me = session.me
        self._zookeeper = zookeeper = session.zookeeper
        self._mirror = mirror = session.mirror
        self._config = config
        self._copies = copies
        self._rounds = rounds
        self._gained_at: float | None = None
        self._gained = asyncio.Event()
        self._tell = tell
        self._missing: list[BundleId] = []
        """The missing bundles that were logged last."""
        self.elections = Elections(mirror, tell, lambda: self.failovers(RECENT))
        self._elector = Elector(zookeeper, session.me, self._ready, on_gained=self._on_gained, on_lost=self._on_lost)

    async def run(self) -> None:
        """Queues, and serves whenever it is elected. Ends only by being cancelled."""
        await self._caught_up()
        await self._elector.queue_up()
        while True:
            await self._gained.wait()
            while self._gained_at is not None:
                await self._rounds.once(self)

    async def _caught_up(self) -> None:
        """Returns once this master has what others hold, or nobody leads: then the gate decides."""
        while (s := self._mirror.snapshot).leader is not None and gate.behind(s, self._copies.published()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CATCH_UP_LOOK_SECS):
                    await self._mirror.changed(s.version)

    async def leave(self, reason: str, heir: MasterId | None = None) -> None:
        """Leaves the queue. `heir`: the master that a leader hands over to; None: the next in the
        queue."""
        place = None if heir is None else await place_of(self._zookeeper, heir)
        await self._elector.leave_queue(reason, place or "")

    async def hand_over(self, target: MasterId) -> bool:
        """Gives way to this master. Returns False, and changes nothing, if it isn't in the
        queue."""
        place = await place_of(self._zookeeper, target)
        if place is not None:
            self.fence()
            self._elector.hand_over(place)
        return place is not None

    async def _ready(self) -> bool:
        """The gate: whether this elected master has every bundle of every live job."""
        snapshot = await self._mirror.sync(5.0)
        if not snapshot.present:
            log.error("the cluster's record is missing or cannot be read, so this master does not lead")
            return False
        missing = gate.missing(snapshot, self._copies.published())
        lost = [bundle for bundle in missing if bundle in self._copies.lost.now() and not snapshot.holders(bundle)]
        if lost:
            await self._give_up(snapshot, lost)
            missing = gate.missing(await self._mirror.sync(5.0), self._copies.published())
        if missing and missing != self._missing:
            log.warning("elected, but bundles of live jobs are missing here", bundles=missing)
        self._missing = missing
        return not missing

    async def _give_up(self, snapshot: ClusterSnapshot, lost: Collection[BundleId]) -> None:
        """Marks bundles lost. After a failure the next election tries again."""
        try:
            fence = await self._elector.elected_fence()
            for bundle in lost:
                await mark_lost(fence, snapshot.bundles[bundle])
        except TransactionFailed as exc:
            log.debug("a record changed under the gate", why=str(exc))
        except TorrentdistError as error:
            log.info("a lost bundle is not marked yet", error=error.message)

    def _on_gained(self, term: Term) -> None:
        self.elections.won(term.epoch)
        self._gained_at = asyncio.get_running_loop().time()
        self._rounds.begin_term()
        self._gained.set()

    def _on_lost(self, term: Term) -> None:
        self._tell(LeaderLost(epoch=term.epoch, led_secs=self.led_for()))
        self._gained_at = None
        self._gained.clear()

    # what others ask

    def is_leader(self) -> bool:
        return self._elector.is_leader()

    def state(self) -> MasterState:
        return state_of(self._elector.phase, self.is_leader())

    async def failovers(self, count: int) -> list[FailoverRecord]:
        """Returns the last failovers, the newest first."""
        names = queue(await self._zookeeper.children(paths.FAILOVERS) or ())[-count:]
        found = await asyncio.gather(*(self._zookeeper.get(paths.failover(name)) for name in reversed(names)))
        return [decode(node[0], FailoverRecord, path=paths.FAILOVERS) for node in found if node is not None]

    def led_for(self) -> float:
        """Returns the seconds since this master was elected last; 0 if it does not lead."""
        return 0.0 if self._gained_at is None else asyncio.get_running_loop().time() - self._gained_at

    def fence(self) -> Fence:
        """Returns the way to change something as the leader.

        A refusal names the leader and all masters.
        """
        try:
            return self._elector.fence()
        except TorrentdistError as error:
            snapshot = self._mirror.snapshot
            if lacks_cluster(self._mirror):
                raise TorrentdistError("no_cluster", chroot=self._zookeeper.chroot) from None
            knows_better = snapshot.present and snapshot.leader not in (None, self.me)
            if self._zookeeper.state is not SessionState.CONNECTED and not knows_better:
                raise TorrentdistError("zookeeper_unavailable", detail="this master is cut off from it") from None
            leader = snapshot.masters.get(snapshot.leader) if snapshot.leader else None
            extra = {
                "leader": leader.url if leader is not None and snapshot.leader != self.me else None,
                "masters": [m.url for m in snapshot.masters.values()],
            }
            raise TorrentdistError(error.code, extra=extra, **error.fields) from None

    def give_way(self, reason: str) -> None:
        """Lets the next master in the queue lead."""
        self._elector.give_way(reason)

    def leader_id(self) -> MasterId | None:
        return self._mirror.snapshot.leader

    def leader_view(self) -> LeaderView:
        snapshot = self._mirror.snapshot
        if snapshot.leader is None:
            if self._zookeeper.state is not SessionState.CONNECTED:
                raise TorrentdistError("zookeeper_unavailable", detail="this master can't tell who leads")
            if lacks_cluster(self._mirror):
                raise TorrentdistError("no_cluster", chroot=self._zookeeper.chroot)
            raise TorrentdistError("no_leader")
        return LeaderView(leader=snapshot.leader, epoch=snapshot.epoch, since=snapshot.leader_since)

    def default_min_replicas(self, snapshot: ClusterSnapshot) -> int:
        """Returns the configured minimum, or 1 where only one master is registered."""
        return 1 if len(snapshot.masters) == 1 else self._config.min_count
