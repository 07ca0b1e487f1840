"""Does what a leader owes the records of bundles and requests, one round after another.

Always: a duty that fails is seen again in the next round. A round looks at what changed since the
last one, and at everything if that failed. Ages of all tombstones are looked at rarely.
Never: decide what is due. leader_duties.py does.
"""

import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Protocol

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.records.record_index import Follower, PerBundle
from torrentdist.cluster.records.snapshot import BundleEntry, Changes, ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Delete, NoNode, Op, Set, TransactionFailed
from torrentdist.log import get_logger
from torrentdist.master.changes.answered_requests import RequestTrimmer, make_buckets
from torrentdist.master.changes.record_loop import LOOK_SECS, RecordLoop
from torrentdist.master.changes.removal_notice import NOTICE_SCHEMA, RemovalNotice
from torrentdist.master.leading import gate
from torrentdist.master.leading.leader_duties import (
    UNFINISHED,
    Duty,
    ForgetUpload,
    MarkAvailable,
    MarkLost,
    TrimTombstone,
    duties,
)
from torrentdist.master.leading.lost_bundles import LostBundles
from torrentdist.master.leading.schema_upgrade import Upgrade
from torrentdist.master.master_session import MasterSession
from torrentdist.model.configuration.config import ReplicationConfig
from torrentdist.model.events import BundleUploaded, Fact
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleRecord, BundleState, encode

log = get_logger()

TOMBSTONE_LOOKS = 1000
"""How often the age of a tombstone is looked at within the time that it is kept, at most."""


class Office(Protocol):
    """What a round needs of the leadership."""

    def fence(self) -> Fence: ...

    def led_for(self) -> float: ...

    def give_way(self, reason: str) -> None: ...


class Copies(msgspec.Struct, frozen=True):
    """What a master knows of the copies of a bundle, its own and others'."""

    published: Callable[[], Collection[Digest]]
    """Returns the digests that this master has published."""
    may_complete: Callable[[Digest], bool]
    """Tells whether some peer has this content, or is about to."""
    lost: LostBundles


class Upkeep(msgspec.Struct, frozen=True):
    """What a leader does now and then."""

    requests: RequestTrimmer
    upgrade: Upgrade


class LeaderRounds:
    def __init__(
        self,
        session: MasterSession,
        config: ReplicationConfig,
        copies: Copies,
        upkeep: Upkeep,
        tell: Callable[[Fact], None],
    ) -> None:
        self._zookeeper = session.zookeeper
        self._config = config
        self._copies = copies
        self._upkeep = upkeep
        self._tell = tell
        self._follower = Follower()
        self._unfinished: PerBundle[BundleState] = PerBundle(_state_if(UNFINISHED))
        self._tombstones: PerBundle[BundleState] = PerBundle(_state_if((BundleState.REMOVED,)))
        self._look_at_tombstones = float("-inf")
        """time.monotonic() of the next look at all tombstones."""
        self._removals = RemovalNotice()
        self._needed: frozenset[BundleId] = frozenset()
        self._tree_is_whole = self._has_notice = False
        self._loop = RecordLoop(session.mirror, "what is due for bundles")

    def begin_term(self) -> None:
        """To be called when this master is elected."""
        self._tree_is_whole = self._has_notice = False

    async def once(self, office: Office) -> None:
        """Does what is due, then waits until something may be due again."""
        await self._loop.once(partial(self._step, office))

    async def _step(self, office: Office, snapshot: ClusterSnapshot) -> float:
        await self._complete_tree(office.fence())
        follower, self._follower = self._follower, Follower()  # unless this step ends well
        news = follower.news(snapshot)
        await self._loop.attempt(paths.REMOVALS, partial(self._tell_removals, office.fence(), snapshot, news))
        self._give_way_if_behind(office, snapshot, news)
        for duty in self._due(snapshot, news, office.led_for()):
            await self._loop.attempt(paths.bundle(duty.bundle), partial(self._do, office.fence(), snapshot, duty))
        requests, upgrade = self._upkeep.requests, self._upkeep.upgrade
        waits = (
            await self._loop.attempt(paths.REQUESTS, lambda: requests.trim_when_due(office.fence())),
            await self._loop.attempt(paths.CLUSTER, lambda: upgrade.step(snapshot, office.fence(), self._loop)),
        )
        self._follower = follower
        return min([LOOK_SECS, *(wait for wait in waits if wait is not None)])

    async def _tell_removals(self, fence: Fence, snapshot: ClusterSnapshot, news: Changes | None) -> None:
        """Names the newest tombstones, once every daemon knows the notice: a master of the release
        before takes its ACL for a foreign one, and does not start."""
        if snapshot.schema < NOTICE_SCHEMA:
            return
        if not self._has_notice:
            await self._zookeeper.ensure(paths.REMOVALS)
            self._has_notice = True
        await self._removals.tell(snapshot, news, self._tombstones.of(snapshot), fence)

    async def _complete_tree(self, fence: Fence) -> None:
        """Makes what a tree of an older release lacks."""
        if not self._tree_is_whole:
            for path in (paths.BUNDLES, paths.ASSIGNMENTS, paths.SUPERVISORS, *paths.LATER_PARENTS):
                await self._zookeeper.ensure(path)
            await make_buckets(self._zookeeper, fence)
            self._tree_is_whole = True

    def _give_way_if_behind(self, office: Office, snapshot: ClusterSnapshot, news: Changes | None) -> None:
        if news is None or news.jobs:
            self._needed = gate.needed(snapshot)
        elif not news.bundles & self._needed:
            return
        lacks = gate.yields_for(snapshot, self._copies.published(), self._needed)
        if lacks is not None:
            log.info("this master gives way", lacks=lacks)
            office.give_way("gave way: it lacks a bundle of a live job")  # everybody reads the reason

    def _due(self, snapshot: ClusterSnapshot, news: Changes | None, led_for: float) -> list[Duty]:
        unfinished, tombstones, lost = (
            self._unfinished.of(snapshot),
            self._tombstones.of(snapshot),
            self._copies.lost.now(),
        )
        now = time.monotonic()
        if news is None or now >= self._look_at_tombstones:
            self._look_at_tombstones = now + max(LOOK_SECS, self._config.tombstone_secs / TOMBSTONE_LOOKS)
            removed = [*tombstones]
        else:
            removed = [bundle for bundle in news.bundles if bundle in tombstones]
        uploading = {snapshot.bundles[bundle].record.digest for bundle in unfinished}
        due = partial(
            duties,
            snapshot,
            active={digest for digest in uploading if self._copies.may_complete(digest)}
            | self._kept_on_hosts(snapshot, removed),
            lost=lost,
            led_for=led_for,
            server_now=self._zookeeper.server_now() or 0.0,  # unknown: nothing is old
            config=self._config,
        )
        among = {*unfinished, *removed, *(bundle for bundle in lost if bundle in snapshot.bundles)}
        found = (self._loop.decide(paths.bundle(bundle), partial(due, among=[bundle])) for bundle in sorted(among))
        return [duty for some in found for duty in some or ()]

    def _kept_on_hosts(self, snapshot: ClusterSnapshot, removed: Iterable[BundleId]) -> set[Digest]:
        """Returns the contents of old tombstones that hosts still have, such as for a program that
        runs on. What another bundle names needs no tombstone."""
        oldest = (self._zookeeper.server_now() or 0.0) - self._config.tombstone_secs
        old = {snapshot.bundles[bundle].record.digest for bundle in removed if snapshot.bundles[bundle].mtime < oldest}
        if kept := {digest for digest in old if self._copies.may_complete(digest)}:
            records = (entry.record for entry in snapshot.bundles.values())
            kept -= {record.digest for record in records if record.state is not BundleState.REMOVED}
        return kept

    async def _do(self, fence: Fence, snapshot: ClusterSnapshot, duty: Duty) -> None:
        entry = snapshot.bundles[duty.bundle]
        path = paths.bundle(duty.bundle)
        ops: list[Op]
        match duty:
            case MarkAvailable():
                record = msgspec.structs.replace(entry.record, state=BundleState.AVAILABLE)
                ops = [Set(path, encode(record), entry.version)]
            case MarkLost():
                return await mark_lost(fence, entry)
            case ForgetUpload() | TrimTombstone():
                log.info("forgetting a bundle", bundle=duty.bundle, why=type(duty).__name__)
                ops = [*(Delete(paths.replica(duty.bundle, m)) for m in entry.replicas), Delete(path, entry.version)]
        try:
            await fence.commit(ops)
        except TransactionFailed as exc:
            if not isinstance(exc.reason, NoNode):
                raise
        else:
            if isinstance(duty, MarkAvailable):
                self._tell(self._uploaded(entry.record))

    def _uploaded(self, record: BundleRecord) -> BundleUploaded:
        now = self._zookeeper.server_now()
        seconds = 0.0 if now is None else max(0.0, now - record.created_at)
        return BundleUploaded(bundle=record.id, digest=record.digest, size=record.size, seconds=seconds)


def _state_if(states: Collection[BundleState]) -> Callable[[ClusterSnapshot, BundleId], BundleState | None]:
    def state(snapshot: ClusterSnapshot, bundle: BundleId) -> BundleState | None:
        found = snapshot.bundles[bundle].record.state
        return found if found in states else None

    return state


async def mark_lost(fence: Fence, entry: BundleEntry) -> None:
    record = msgspec.structs.replace(entry.record, state=BundleState.LOST)
    await fence.commit([Set(paths.bundle(record.id), encode(record), entry.version)])
    log.error("every copy of a bundle is lost", bundle=record.id, digest=record.digest)
