"""This master's part in leading: it queues, and while it leads it does what the leader owes the
records.

Always holds: everything that the leader changes goes through the fence of its term; a duty that
fails is seen again in the next round. Must not do: decide what is due (duties.py does).
Longer than most files: queueing and the leader's duties share one loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.election.elector import Elector
from torrentdist.cluster.election.epoch import place_of
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.election.term import Term, queue
from torrentdist.cluster.records.record_index import Follower, PerBundle
from torrentdist.cluster.records.snapshot import BundleEntry, Changes, ClusterSnapshot
from torrentdist.cluster.session.arrival import lacks_cluster
from torrentdist.cluster.session.znode_operations import (
    Delete,
    NoNode,
    Op,
    SessionState,
    Set,
    TransactionFailed,
)
from torrentdist.log import get_logger
from torrentdist.master.changes.answered_requests import make_buckets
from torrentdist.master.changes.request_trimming import RequestTrimmer
from torrentdist.master.leading import gate
from torrentdist.master.leading.election_events import Elections
from torrentdist.master.leading.leader_duties import (
    UNFINISHED,
    Duty,
    ForgetUpload,
    MarkAvailable,
    MarkLost,
    TrimTombstone,
    duties,
)
from torrentdist.master.leading.roles import state_of
from torrentdist.master.leading.schema_upgrade import Upgrade
from torrentdist.master.master_session import MasterSession
from torrentdist.model.backoff import Retry
from torrentdist.model.configuration.config import ReplicationConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import BundleUploaded, Fact, LeaderLost
from torrentdist.model.ids import BundleId, Digest, MasterId
from torrentdist.model.records import BundleState, FailoverRecord, decode, encode
from torrentdist.model.wire.ha_views import LeaderView, MasterState

log = get_logger()

LOOK_SECS = 10.0
"""Ages are looked at this often; what a change makes due is done at once."""


WATCH_SECS = 1.0


@dataclass(frozen=True, slots=True)
class Copies:
    """What a master knows of the copies of a bundle, its own and others'."""

    published: Callable[[], Collection[Digest]]
    """Returns the digests that this master has published."""
    are_elsewhere: Callable[[Digest], bool]
    """Tells whether some peer has a whole copy; a supervisor's copy counts."""
    may_complete: Callable[[Digest], bool]
    """Tells whether somebody is about to complete this upload."""


class Leadership:
    def __init__(
        self,
        session: MasterSession,
        config: ReplicationConfig,
        copies: Copies,
        requests: RequestTrimmer,
        upgrade: Upgrade,
        tell: Callable[[Fact], None],
    ) -> None:
        """`tell` gets the facts for the log of events."""
        self._me = session.me
        self._zookeeper = zookeeper = session.zookeeper
        self._mirror = mirror = session.mirror
        self._config = config
        self._copies = copies
        self._follower = Follower()
        self._unfinished: PerBundle[BundleState] = PerBundle(_state_if(UNFINISHED))
        self._tombstones: PerBundle[BundleState] = PerBundle(_state_if((BundleState.REMOVED,)))
        self._looked_at = float("-inf")
        """When all tombstones were looked at."""
        self._needed: frozenset[BundleId] = frozenset()
        self._requests = requests
        self._upgrade = upgrade
        self._absent = PerBundle(gate.absent)
        self._absent_since: dict[BundleId, float] = {}
        self._gained_at: float | None = None
        self._tree_is_whole = False
        self._gained = asyncio.Event()
        self._tell = tell
        self._trouble = Retry(LOOK_SECS, LOOK_SECS)
        self._missing: list[BundleId] = []
        """What this master was last said to lack."""
        self.elections = Elections(mirror, tell, lambda: self.failovers(1))
        self._elector = Elector(zookeeper, session.me, self._ready, on_gained=self._on_gained, on_lost=self._on_lost)

    async def run(self) -> None:
        """Queue, and serve whenever elected. Ends only by being cancelled."""
        await self._caught_up()
        await self._elector.queue_up()
        while True:
            await self._gained.wait()
            while self._gained_at is not None:
                await self._serve_once()

    async def _caught_up(self) -> None:
        """A new master catches up before it queues; when nobody leads it queues at once, and the
        gate decides."""
        while (s := self._mirror.snapshot).leader is not None and gate.behind(s, self._copies.published()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECS):
                    await self._mirror.changed(s.version)

    async def leave(self, reason: str, heir: MasterId | None = None) -> None:
        """`heir`: whom a leader leaves its office to, if not to the next in the queue."""
        place = None if heir is None else await place_of(self._zookeeper, heir)
        await self._elector.leave_queue(reason, place or "")

    async def hand_over(self, target: MasterId) -> bool:
        """Give way to this master; False, and nothing is changed, if it isn't in the queue."""
        place = await place_of(self._zookeeper, target)
        if place is not None:
            self.fence()
            self._elector.hand_over(place)
        return place is not None

    async def _ready(self) -> bool:
        """The gate: an elected master that lacks a live job's bundle acts on nothing and gives way.
        The one thing that it does is to mark lost what nobody has any more, or nobody would ever
        lead."""
        snapshot = await self._mirror.sync(5.0)
        if not snapshot.present:
            log.error("the cluster's record is missing or cannot be read, so this master does not lead")
            return False
        missing = gate.missing(snapshot, self._copies.published())
        lost = [bundle for bundle in missing if bundle in self._lost() and not snapshot.holders(bundle)]
        if lost:
            await self._give_up(snapshot, lost)
            missing = gate.missing(await self._mirror.sync(5.0), self._copies.published())
        if missing and missing != self._missing:
            log.warning("elected, but bundles of live jobs are missing here", bundles=missing)
        self._missing = missing
        return not missing

    async def _give_up(self, snapshot: ClusterSnapshot, lost: Collection[BundleId]) -> None:
        """Whatever goes wrong, the next turn tries again."""
        try:
            fence = await self._elector.elected_fence()
            for bundle in lost:
                await _mark_lost(fence, snapshot.bundles[bundle])
        except TransactionFailed as exc:
            log.debug("a record changed under the gate", why=str(exc))
        except TorrentdistError as error:
            log.info("a lost bundle is not marked yet", error=error.message)

    async def watch_absences(self) -> None:
        """Every master counts for how long a bundle has been with nobody; being cut off proves
        nothing."""
        while True:
            if self._mirror.fresh:
                snapshot = self._mirror.snapshot
                self._absent_since = gate.absences(
                    self._absent_since, self._absent.of(snapshot), self._copies.are_elsewhere, time.monotonic()
                )
            elif self._zookeeper.state is not SessionState.CONNECTED:  # else it is just being read
                self._absent_since = {}
            await asyncio.sleep(WATCH_SECS)

    def _lost(self) -> list[BundleId]:
        return gate.lost(self._absent_since, time.monotonic(), self._config.lost_secs)

    def _on_gained(self, term: Term) -> None:
        self.elections.won(term.epoch)
        self._gained_at = asyncio.get_running_loop().time()
        self._tree_is_whole = False
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
        """The last ones, the newest first."""
        names = queue(await self._zookeeper.children(paths.FAILOVERS) or ())[-count:]
        found = await asyncio.gather(*(self._zookeeper.get(paths.failover(name)) for name in reversed(names)))
        return [decode(node[0], FailoverRecord, path=paths.FAILOVERS) for node in found if node is not None]

    def led_for(self) -> float:
        """Seconds since this master was elected last; 0 if it does not lead."""
        return 0.0 if self._gained_at is None else asyncio.get_running_loop().time() - self._gained_at

    def fence(self) -> Fence:
        """The way to change something as the leader; a refusal names the leader and all masters."""
        try:
            return self._elector.fence()
        except TorrentdistError as error:
            snapshot = self._mirror.snapshot
            if lacks_cluster(self._mirror):
                raise TorrentdistError("no_cluster", chroot=self._zookeeper.chroot) from None
            knows_better = snapshot.present and snapshot.leader not in (None, self._me)
            if self._zookeeper.state is not SessionState.CONNECTED and not knows_better:
                raise TorrentdistError("zookeeper_unavailable", detail="this master is cut off from it") from None
            leader = snapshot.masters.get(snapshot.leader) if snapshot.leader else None
            extra = {
                "leader": leader.url if leader is not None and snapshot.leader != self._me else None,
                "masters": [m.url for m in snapshot.masters.values()],
            }
            raise TorrentdistError(error.code, extra=extra, **error.fields) from None

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
        """As configured, but a cluster of one master is not asked for two."""
        return 1 if len(snapshot.masters) == 1 else self._config.min_count

    # what a leader owes

    async def _serve_once(self) -> None:
        snapshot, look_secs = self._mirror.snapshot, LOOK_SECS
        try:
            if not self._tree_is_whole:  # it may be of an older release
                for path in (paths.BUNDLES, paths.ASSIGNMENTS, paths.SUPERVISORS, paths.JOBS, paths.TOKENS):
                    await self._zookeeper.ensure(path)
                await make_buckets(self._zookeeper, self.fence())
                self._tree_is_whole = True
            news = self._follower.news(snapshot)
            self._give_way_if_behind(snapshot, news)
            for duty in self._due(snapshot, news):
                await self._do(snapshot, duty)
            look_secs = min(look_secs, await self._requests.trim_when_due(self.fence()))
            look_secs = min(look_secs, await self._upgrade.step(snapshot, self.fence()))
            self._trouble.succeeded()
        except TransactionFailed as exc:
            log.debug("a record changed under a duty", why=str(exc))
        except TorrentdistError as error:
            if self._trouble.failed(error.code):
                log.info("a duty waits", error=error.message)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(look_secs):
                await self._mirror.changed(snapshot.version)

    def _give_way_if_behind(self, snapshot: ClusterSnapshot, news: Changes | None) -> None:
        if news is None or news.jobs:
            self._needed = gate.needed(snapshot)
        elif not news.bundles & self._needed:
            return
        missing = gate.missing(snapshot, self._copies.published(), self._needed)
        if missing and gate.others_have(snapshot, missing):
            self._elector.give_way(f"gave way: it lacks bundle {missing[0]}")

    def _due(self, snapshot: ClusterSnapshot, news: Changes | None) -> list[Duty]:
        if self._gained_at is None:
            return []
        unfinished, tombstones, lost = self._unfinished.of(snapshot), self._tombstones.of(snapshot), self._lost()
        now = time.monotonic()
        if news is None or now - self._looked_at >= LOOK_SECS:
            self._looked_at = now
            removed = [*tombstones]
        else:
            removed = [bundle for bundle in news.bundles if bundle in tombstones]
        uploading = {snapshot.bundles[bundle].record.digest for bundle in unfinished}
        return duties(
            snapshot,
            among={*unfinished, *removed, *(bundle for bundle in lost if bundle in snapshot.bundles)},
            active={digest for digest in uploading if self._copies.may_complete(digest)},
            lost=lost,
            led_for=self.led_for(),
            server_now=self._zookeeper.server_now() or 0.0,  # unknown: nothing is old
            config=self._config,
        )

    async def _do(self, snapshot: ClusterSnapshot, duty: Duty) -> None:
        entry = snapshot.bundles[duty.bundle]
        path = paths.bundle(duty.bundle)
        ops: list[Op]
        match duty:
            case MarkAvailable():
                record = msgspec.structs.replace(entry.record, state=BundleState.AVAILABLE)
                ops = [Set(path, encode(record), entry.version)]
            case MarkLost():
                return await _mark_lost(self.fence(), entry)
            case ForgetUpload() | TrimTombstone():
                log.info("forgetting a bundle", bundle=duty.bundle, why=type(duty).__name__)
                ops = [*(Delete(paths.replica(duty.bundle, m)) for m in entry.replicas), Delete(path, entry.version)]
        try:
            await self.fence().commit(ops)
        except TransactionFailed as exc:
            if not isinstance(exc.reason, NoNode):
                raise
        else:
            if isinstance(duty, MarkAvailable):
                self._tell(BundleUploaded(bundle=duty.bundle, digest=entry.record.digest, size=entry.record.size))


def _state_if(states: Collection[BundleState]) -> Callable[[ClusterSnapshot, BundleId], BundleState | None]:
    def state(snapshot: ClusterSnapshot, bundle: BundleId) -> BundleState | None:
        found = snapshot.bundles[bundle].record.state
        return found if found in states else None

    return state


async def _mark_lost(fence: Fence, entry: BundleEntry) -> None:
    record = msgspec.structs.replace(entry.record, state=BundleState.LOST)
    await fence.commit([Set(paths.bundle(record.id), encode(record), entry.version)])
    log.error("every copy of a bundle is lost", bundle=record.id, digest=record.digest)
