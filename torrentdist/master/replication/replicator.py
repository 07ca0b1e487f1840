"""Carries out the replication plan of one master: fetch, announce, withdraw and drop bundles.

Always: it looks again at once when the records change or a fetch ends, soon after a step that
failed, and after `sync_secs` in any case.
Never: decide. replication_plan.py says what to do.
"""

import asyncio
import os
import time

from torrentdist.cluster import paths
from torrentdist.cluster.records.record_index import Follower, RecordIndex
from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Check, Create, Delete, Op, Set, TransactionFailed
from torrentdist.log import get_logger
from torrentdist.master.changes.record_loop import bug
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_core import MasterCore
from torrentdist.master.replication.fetch_attempts import FetchAttempts
from torrentdist.master.replication.replica_fetches import ReplicaFetches
from torrentdist.master.replication.replication_plan import (
    Abandon,
    Action,
    DropReplica,
    FetchReplica,
    ForgetName,
    Local,
    PublishReplica,
    WithdrawReplica,
    is_alive,
    is_settled,
    is_unrecorded,
    plan,
)
from torrentdist.model.backoff import Retry, kind_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleState, ReplicaRecord, encode

log = get_logger()

FIRST_RETRY_SECS = 0.5
LONGEST_RETRY_SECS = 5.0
"""Pauses before a step that failed is tried again."""


class Replicator:
    def __init__(
        self, core: MasterCore, leadership: Leadership, fetches: ReplicaFetches, attempts: FetchAttempts
    ) -> None:
        self._me = core.session.me
        self._zookeeper = core.session.zookeeper
        self._runtime = core.host.runtime
        self._mirror = core.session.mirror
        self._leadership = leadership
        self._fetches = fetches
        self._attempts = attempts
        self._mirror.on_change.append(attempts.poke)
        self._config = core.config.replication
        self._failed = Retry(FIRST_RETRY_SECS, LONGEST_RETRY_SECS)
        self._follower = Follower()
        self._index = RecordIndex()
        self._open: set[BundleId] = set()
        """Bundles that may need an action; all others are settled."""
        self._looked_at = float("-inf")
        """time.monotonic() of the last look at all bundles."""
        self._published_before: frozenset[Digest] = frozenset()
        self._arriving_before: frozenset[Digest] = frozenset()

    async def run(self) -> None:
        """Replicates, for ever. Fetches go on if it fails, and end only with the daemon."""
        try:
            while True:
                planned_at, longest = await self.round()
                await self._attempts.wait(self._attempts.secs_until_next(planned_at, longest))
        except asyncio.CancelledError:
            self._fetches.cancel()
            raise

    async def _stale(self) -> frozenset[Digest]:
        return frozenset([d for d in self._runtime.store.arriving() if await self._is_stale(d)])

    async def _is_stale(self, digest: Digest) -> bool:
        """Whether an upload began long ago and is not finished."""
        try:
            arrival = await self._runtime.store.arrival(digest)
            if arrival is None or arrival.set_aside is not None:  # it may be the last copy there is
                return False
            begun = (await asyncio.to_thread(os.stat, self._runtime.store.object_dir(digest) / "metafile")).st_mtime
        except (OSError, TorrentdistError):
            return False
        return time.time() - begun > self._config.abandon_secs

    def _local(self, stale: frozenset[Digest]) -> Local:
        store = self._runtime.store
        return Local(
            me=self._me,
            store=store.id,
            published=store.published_digests(),
            arriving=frozenset(store.arriving()),
            fetching=self._fetches.under_way(),
            stale=stale,
            not_before=self._attempts.not_before(),
            parallel=self._config.parallel_fetches,
            joins_uploads=self._fetches.joins_uploads,
            leading=self._leadership.is_leader(),
            schema=self._mirror.snapshot.schema,
            names=store.names,
        )

    def _look_at_changes(self, snapshot: ClusterSnapshot, local: Local) -> None:
        """Opens the bundles that changed since the last round; every `sync_secs` it opens all."""
        news = self._follower.news(snapshot)
        self._index.follow(snapshot)
        now = time.monotonic()
        if news is None or news.cluster or now - self._looked_at >= self._config.sync_secs:
            self._looked_at = now
            self._open = set(snapshot.bundles)
        else:
            moved = local.arriving ^ self._arriving_before
            if local.published is not self._published_before:
                moved |= local.published ^ self._published_before
            self._open.update(news.bundles, *(self._index.bundles_of(digest) for digest in moved))
            self._open &= snapshot.bundles.keys()
        self._published_before, self._arriving_before = local.published, local.arriving

    async def round(self) -> tuple[float, float]:
        """Makes a plan from what is known now, and carries it out. Returns the time.monotonic() of
        the plan, and the seconds until the next round at most."""
        stale = await self._stale()
        snapshot = self._mirror.snapshot
        local = self._local(stale)
        self._look_at_changes(snapshot, local)
        planned_at = time.monotonic()
        actions = plan(snapshot, local, planned_at, self._open, self._index)
        self._open = {bundle for bundle in self._open if not is_settled(snapshot, local, bundle)}
        failures = 0
        for action in actions:
            try:
                await self._act(snapshot, action)
            except Exception as error:
                failures += 1
                what = type(action).__name__
                if self._failed.failed(f"{what}: {kind_of(error)}"):
                    log.warning("replication step failed", action=what, error=str(error), exc_info=bug(error))
        if failures:
            return planned_at, self._failed.pause_secs
        self._failed.succeeded()
        return planned_at, self._config.sync_secs

    async def _act(self, snapshot: ClusterSnapshot, action: Action) -> None:
        match action:
            case FetchReplica(bundle, _):
                self._fetches.start(snapshot.bundles[bundle], self._likely_holders(snapshot, bundle))
            case PublishReplica(bundle, digest):
                await self._runtime.store.bind(bundle, digest)
                await self._record(snapshot.bundles[bundle], digest)
            case WithdrawReplica(bundle):
                await self._withdraw(snapshot.bundles[bundle])
            case ForgetName(bundle):
                await self._forget_name(bundle)
            case Abandon(digest):
                await self._drop(digest, "an abandoned upload is dropped")
            case DropReplica(digest):
                await self._drop(digest, "bundle removed")

    async def _record(self, entry: BundleEntry, digest: Digest) -> None:
        """Records that this master holds the bundle, unless the bundle's record has changed since
        the plan was made."""
        path = paths.replica(entry.record.id, self._me)
        data = encode(ReplicaRecord(master=self._me, store=self._runtime.store.id, digest=digest))
        is_there = self._me in entry.replicas or path in self._mirror.snapshot.damaged
        write = Set(path, data) if is_there else Create(path, data)
        await self._write(Check(paths.bundle(entry.record.id), entry.version), write)

    async def _withdraw(self, entry: BundleEntry) -> None:
        """Takes this master's record back. One of a removed bundle stays if that was uploaded again
        since the plan was made."""
        path, gone = paths.replica(entry.record.id, self._me), entry.record.state is BundleState.REMOVED
        unchanged = [Check(paths.bundle(entry.record.id), entry.version)] if gone else []
        await self._write(*unchanged, Delete(path))

    async def _write(self, *ops: Op) -> None:
        """Writes this master's replica record, or looks again at once."""
        try:
            await self._zookeeper.commit(ops)
        except TransactionFailed as exc:
            log.debug("the record changed meanwhile", why=str(exc))
            self._attempts.poke()

    async def _drop(self, digest: Digest, why: str) -> None:
        """Drops content, unless an upload of it was opened since the plan was made."""
        turn = self._runtime.turn(digest)
        if turn.locked():
            return
        async with turn:
            snapshot = self._mirror.snapshot
            self._index.follow(snapshot)
            names, published = self._runtime.store.names(digest), self._runtime.store.get(digest) is not None
            if is_alive(snapshot, self._index, digest) or (published and is_unrecorded(snapshot, names)):
                return
            log.info(why, digest=digest)
            await self._runtime.drop(digest)  # It frees the room that forgetting the ids may need.
            for bundle in names:
                await self._forget(bundle, digest)

    async def _forget_name(self, bundle: BundleId) -> None:
        """Forgets the id of a removed bundle, unless it was uploaded again since the plan was
        made."""
        digest = self._runtime.store.lookup(bundle)
        if digest is None:
            return
        turn = self._runtime.turn(digest)
        if turn.locked():
            return
        async with turn:
            entry = self._mirror.snapshot.bundles.get(bundle)
            if entry is not None and entry.record.state is BundleState.REMOVED:
                log.info("the id of a removed bundle is forgotten, its content has others", bundle=bundle)
                await self._forget(bundle, digest)

    async def _forget(self, bundle: BundleId, digest: Digest) -> None:
        await self._runtime.fetches.clean_up(bundle, digest)
        await self._runtime.store.unbind(bundle)

    def _likely_holders(self, snapshot: ClusterSnapshot, bundle: BundleId) -> list[str]:
        """Returns URLs of other masters to ask first: holders, then the leader that took the
        upload.
        """
        ids = [*sorted(snapshot.holders(bundle)), self._leadership.leader_id()]
        return [snapshot.masters[i].url for i in ids if i is not None and i != self._me and i in snapshot.masters]
