"""The loop that carries out the plan of replication.py on one master: fetch, announce, withdraw, drop.

Always holds: it looks again at once when the mirror changes or a fetch ends, and after `sync_secs` whatever happened.
A replica record is written in one transaction that checks the bundle's record as it was when the plan was made.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable

import structlog

from torrentdist.bundle.metafile import Metafile
from torrentdist.cluster import paths
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.records.record_index import Follower, RecordIndex
from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Check, Create, Delete, Op, Set, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.host.master_links import MasterLinks
from torrentdist.host.runtime import HostRuntime
from torrentdist.master.bundles.intake import Intake
from torrentdist.master.bundles.replication_plan import (
    Abandon,
    DropReplica,
    FetchReplica,
    Local,
    PublishReplica,
    WithdrawReplica,
    is_settled,
    plan,
)
from torrentdist.master.leading.leadership import Leadership
from torrentdist.model.backoff import pause_secs
from torrentdist.model.configuration.config import ReplicationConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, MasterId
from torrentdist.model.records import BundleState, ReplicaRecord, encode

log = structlog.get_logger(__name__)

FIRST_RETRY_SECS = 1.0
LONGEST_RETRY_SECS = 30.0
LONGEST_UPLOAD_RETRY_SECS = 2.0
DISK_ERRORS = ("disk_full", "disk_error")


class Replicator:
    def __init__(
        self,
        me: MasterId,
        runtime: HostRuntime,
        zookeeper: ZooKeeper,
        mirror: Mirror,
        leadership: Leadership,
        intake: Intake,
        links: MasterLinks,
        config: ReplicationConfig,
        *,
        joins_uploads: bool,
        want_metafile: Callable[[Digest], None],
    ) -> None:
        self._me = me
        self._runtime = runtime
        self._zookeeper = zookeeper
        self._mirror = mirror
        self._leadership = leadership
        self._intake = intake
        self._links = links
        self._config = config
        self._joins_uploads = joins_uploads
        self._want_metafile = want_metafile
        self._tasks: dict[Digest, asyncio.Task[None]] = {}
        self._catching_up: set[Digest] = set()
        self._failures: dict[Digest, int] = {}
        self._disk_errors: dict[Digest, TorrentdistError] = {}
        self._not_before: dict[Digest, float] = {}
        self._wake = asyncio.Event()
        self._follower = Follower()
        self._index = RecordIndex()
        self._open: set[BundleId] = set()
        """Bundles that may have something to do; the others are settled."""
        self._looked_at = float("-inf")
        self._published_before: frozenset[Digest] = frozenset()
        self._arriving_before: frozenset[Digest] = frozenset()
        intake.on_published = self.poke
        intake.on_begun = self.retry
        intake.no_room_for = self._disk_errors.get

    def poke(self) -> None:
        self._wake.set()

    def retry(self, digest: Digest) -> None:
        """What its fetch lacked has come."""
        self._not_before.pop(digest, None)
        self._disk_errors.pop(digest, None)
        self._wake.set()

    async def run(self) -> None:
        watching = asyncio.create_task(self._watch(), name="replication watch")
        try:
            while True:
                await self.round()
                try:
                    async with asyncio.timeout(self._until_next()):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                self._wake.clear()
        finally:
            watching.cancel()
            for task in self._tasks.values():
                task.cancel()

    async def _watch(self) -> None:
        while True:
            await self._mirror.changed(self._mirror.snapshot.version)
            self._wake.set()

    def _until_next(self) -> float:
        now = time.monotonic()
        due = min((t - now for t in self._not_before.values() if t > now), default=self._config.sync_secs)
        return max(0.05, min(self._config.sync_secs, due))

    async def _stale(self) -> frozenset[Digest]:
        return frozenset([d for d in self._runtime.store.arriving() if await self._is_stale(d)])

    async def _is_stale(self, digest: Digest) -> bool:
        arrival = await self._runtime.store.arrival(digest)
        if arrival is None or arrival.set_aside is not None:  # what was set aside may be the last copy there is
            return False
        try:
            begun = (await asyncio.to_thread(os.stat, self._runtime.store.object_dir(digest) / "metafile")).st_mtime
        except OSError:
            return False
        return time.time() - begun > self._config.abandon_secs

    def _local(self, stale: frozenset[Digest]) -> Local:
        store = self._runtime.store
        return Local(
            me=self._me,
            store=store.id,
            published=store.published_digests(),
            arriving=frozenset(store.arriving()),
            fetching=frozenset(self._tasks) | self._intake.over_http(),
            stale=stale,
            not_before=dict(self._not_before),
            parallel=self._config.parallel_fetches,
            joins_uploads=self._joins_uploads,
            leading=self._leadership.is_leader(),
            schema=self._mirror.snapshot.schema,
        )

    def _look_at_changes(self, snapshot: ClusterSnapshot, local: Local) -> None:
        """Open again what changed in the records or in the store since the last round; all of it now and then."""
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

    async def round(self) -> None:
        stale = await self._stale()
        snapshot = self._mirror.snapshot
        local = self._local(stale)
        self._look_at_changes(snapshot, local)
        actions = plan(snapshot, local, time.monotonic(), self._open)
        self._open = {bundle for bundle in self._open if not is_settled(snapshot, local, bundle)}
        for action in actions:
            try:
                match action:
                    case FetchReplica(bundle, digest):
                        self._tasks[digest] = asyncio.create_task(self._fetch(snapshot, bundle, digest))
                    case PublishReplica(bundle, digest):
                        await self._publish_replica(snapshot.bundles[bundle], digest)
                    case WithdrawReplica(bundle):
                        await self._commit(Delete(paths.replica(bundle, self._me)))
                    case Abandon(digest):
                        log.info("an abandoned upload is dropped", digest=digest)
                        await self._runtime.drop(digest)
                    case DropReplica(digest):
                        await self._drop(digest)
            except TorrentdistError as error:
                log.warning("replication step failed", action=type(action).__name__, error=error.message)

    async def _publish_replica(self, entry: BundleEntry, digest: Digest) -> None:
        record = entry.record
        path = paths.replica(record.id, self._me)
        data = encode(ReplicaRecord(master=self._me, store=self._runtime.store.id, digest=digest))
        write: Op = Set(path, data) if self._me in entry.replicas else Create(path, data)
        await self._runtime.store.bind(record.id, digest)
        await self._commit(Check(paths.bundle(record.id), entry.version), write)

    async def _commit(self, *ops: Op) -> None:
        try:
            await self._zookeeper.commit(ops)
        except TransactionFailed as exc:
            log.debug("the record changed meanwhile", why=str(exc))
            self._wake.set()

    async def _drop(self, digest: Digest) -> None:
        log.info("bundle removed", digest=digest)
        for bundle in self._runtime.store.names(digest):
            await self._runtime.fetches.clean_up(bundle)
            await self._runtime.store.unbind(bundle)
        await self._runtime.drop(digest)

    async def _fetch(self, snapshot: ClusterSnapshot, bundle: BundleId, digest: Digest) -> None:
        entry = snapshot.bundles[bundle]
        self._disk_errors.pop(digest, None)
        try:
            if entry.record.state is not BundleState.UPLOADING:
                self._catching_up.add(digest)
                self._runtime.transfers.share_limit(self._catching_up, self._config.catch_up_limit)
            meta = await self._own_metafile(digest)
            first = self._likely_holders(snapshot, bundle)
            if meta is None:
                meta = await self._metafile_of(digest, first)
            if digest in self._intake.over_http():
                return  # since we began: its bytes come in order, and nobody else may write them
            if self._joins_uploads:
                await self._runtime.fetches.fetch(bundle, meta)
            elif entry.record.state is BundleState.UPLOADING:
                await self._runtime.fetches.fetch_from_uploader(bundle, meta)
            else:
                plugin = await self._links.plugin_metafile(digest, first)
                await self._runtime.fetches.fetch(bundle, meta, plugin_metafile=plugin)
            self._failures.pop(digest, None)
            self._not_before.pop(digest, None)
        except TorrentdistError as error:
            if error.code in DISK_ERRORS:
                self._disk_errors[digest] = error
            failures = self._failures[digest] = self._failures.get(digest, 0) + 1
            uploading = entry.record.state is BundleState.UPLOADING  # somebody waits
            longest = LONGEST_UPLOAD_RETRY_SECS if uploading else LONGEST_RETRY_SECS
            self._not_before[digest] = time.monotonic() + pause_secs(
                failures, FIRST_RETRY_SECS, longest, random.random()
            )
            log.warning("fetch failed", bundle=bundle, error=error.code, detail=error.message, failures=failures)
        finally:
            self._tasks.pop(digest, None)
            self._catching_up.discard(digest)
            self._runtime.transfers.share_limit(self._catching_up, self._config.catch_up_limit)
            self._wake.set()

    async def _own_metafile(self, digest: Digest) -> Metafile | None:
        """None too if it is damaged: another master's replaces it."""
        try:
            return await self._runtime.store.metafile(digest)
        except TorrentdistError as error:
            log.warning("a damaged metafile is fetched anew", digest=digest, detail=error.message)
            return None

    async def _metafile_of(self, digest: Digest, first: list[str]) -> Metafile:
        try:
            return await self._links.metafile_of(digest, first)
        except TorrentdistError as error:
            if error.code in ("not_found", "unreachable"):
                self._want_metafile(digest)
            raise

    def _likely_holders(self, snapshot: ClusterSnapshot, bundle: BundleId) -> list[str]:
        """URLs to ask first: who has it, then who took the upload."""
        ids = [*sorted(snapshot.holders(bundle)), self._leadership.leader_id()]
        return [snapshot.masters[i].url for i in ids if i is not None and i != self._me and i in snapshot.masters]
