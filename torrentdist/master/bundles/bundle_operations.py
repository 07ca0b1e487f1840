"""The changes of bundles: open an upload, finish it, sign, pin, remove.

Each change is a pure function from a snapshot to ZooKeeper operations, which changes/commit.py
commits.
Always: an id never gets other content. Never: remove a bundle that is pinned or that a live job
needs.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from torrentdist.bundle.metafile import Metafile
from torrentdist.cluster import paths
from torrentdist.cluster.records.record_index import PerBundle, RecordIndex
from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Check, Create, Op, Set
from torrentdist.master.bundles.bundle_views import bundle_view, not_found, other_content
from torrentdist.master.changes.answered_requests import Mutation
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.policies.distribution_changes import end_ops, untell_ops
from torrentdist.master.policies.quotas import check_bytes, check_uploads
from torrentdist.master.replication.possession import give_way_ops, must_prove
from torrentdist.model.access.envelope import MAX_SIGNATURES, Envelope
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.distribution_record import DistributionState
from torrentdist.model.records import BundleRecord, BundleState, encode
from torrentdist.security.signing.signatures import BundleStatement, difference, parse_statement

SIGNING_SCHEMA = 2
"""The schema of records that can hold signatures."""
PACKING_SCHEMA = 2
"""The schema of clusters all of whose daemons read bundles with packs and modes."""
BATCH = 100
"""Most operations in one transaction. ZooKeeper limits its size, and a fleet may be larger."""


class Uploader(msgspec.Struct, frozen=True):
    """The sender of an upload: its name, and the patterns of the bundles that it may read."""

    name: str = ""
    reads: tuple[str, ...] = ("*",)
    has_proven: bool = False
    """Whether it has shown that it has the content."""
    goes_on: bool = False
    """Whether it goes on with an upload that it opened before."""


ANYBODY = Uploader()


class BundleOperations:
    def __init__(
        self,
        changes: LeaderChanges,
        default_min_replicas: Callable[[ClusterSnapshot], int],
        now: Callable[[], float] = time.time,
    ) -> None:
        """`now` returns the time by ZooKeeper's clock; by ours while it is unknown."""
        self._now = now
        self._changes = changes
        self._default_min_replicas = default_min_replicas
        self._index = RecordIndex()
        self._uploads: PerBundle[str] = PerBundle(_uploader)

    async def open_upload(
        self,
        mutation: Mutation | None,
        bundle: BundleId,
        meta: Metafile,
        min_replicas: int | None,
        recipe: str = "",
        uploader: Uploader = ANYBODY,
    ) -> bytes:
        default = self._default_min_replicas

        def decide(snapshot: ClusterSnapshot) -> Sequence[Op]:
            wanted = min_replicas or default(snapshot)
            self.check_may_open(snapshot, bundle, meta, uploader)
            ops = upload_ops(snapshot, bundle, meta, wanted, self._now(), recipe, uploader)
            return [*give_way_ops(snapshot, self._index.bundles_of(meta.digest), bundle), *ops]

        return await self._changes.make_for(
            uploader.name, mutation, decide, lambda s: bundle_view(s, bundle), batch=BATCH
        )

    def check_may_open(self, snapshot: ClusterSnapshot, bundle: BundleId, meta: Metafile, uploader: Uploader) -> None:
        """Raises `too_many_uploads` if the uploader or the cluster has as many open ones as it may,
        `quota_exceeded` if it may not keep that much, `proof_needed` for hidden content that it has
        not shown, and `bundle_not_found` if it goes on with an upload whose bundle was removed."""
        self._index.follow(snapshot)
        if not opens(snapshot, bundle):
            return
        if uploader.goes_on and (entry := snapshot.bundles.get(bundle)) is not None:
            raise not_found(bundle, entry)
        check_uploads(self._uploads.of(snapshot), uploader.name)
        check_bytes(snapshot, uploader.name, bundle, meta.size)
        if not uploader.has_proven and must_prove(snapshot, self._index.bundles_of(meta.digest), uploader.reads):
            raise TorrentdistError("proof_needed", id=bundle)

    async def finish_upload(self, mutation: Mutation | None, bundle: BundleId) -> bytes:
        """Remembers the answer. The bytes are published already, so no record changes."""
        return await self._changes.make(
            mutation,
            lambda s: [Check(paths.bundle(bundle), _live(s, bundle).version)],
            lambda s: bundle_view(s, bundle),
        )

    async def remove(self, mutation: Mutation | None, bundle: BundleId) -> bytes:
        """Removes a bundle in batches. The last one writes the tombstone."""

        def decide(snapshot: ClusterSnapshot) -> Sequence[Op]:
            self._index.follow(snapshot)
            return removal_ops(snapshot, bundle, self._index)

        return await self._changes.make_alone(mutation, decide, lambda s: bundle_view(s, bundle), batch=BATCH)

    async def sign(self, mutation: Mutation | None, bundle: BundleId, envelope: Envelope) -> bytes:
        """Adds a signature to a bundle's record. Masters know no keys, so they do not verify it."""
        return await self._changes.make(
            mutation, lambda s: signing_ops(s, bundle, envelope), lambda s: bundle_view(s, bundle)
        )

    async def set_pinned(self, mutation: Mutation | None, bundle: BundleId, pinned: bool) -> bytes:
        return await self._changes.make(
            mutation, lambda s: _rewrite(_live(s, bundle), pinned=pinned), lambda s: bundle_view(s, bundle)
        )


def _uploader(snapshot: ClusterSnapshot, bundle: BundleId) -> str | None:
    """Returns who uploads the bundle; None: nobody does."""
    record = snapshot.bundles[bundle].record
    return record.owner if record.state is BundleState.UPLOADING else None


def opens(snapshot: ClusterSnapshot, bundle: BundleId) -> bool:
    """Whether an upload of this bundle makes one more that is open."""
    entry = snapshot.bundles.get(bundle)
    return entry is None or entry.record.state is BundleState.REMOVED


def _live(snapshot: ClusterSnapshot, bundle: BundleId) -> BundleEntry:
    entry = snapshot.bundles.get(bundle)
    if entry is None or entry.record.state is BundleState.REMOVED:
        raise not_found(bundle, entry)
    return entry


def _rewrite(entry: BundleEntry, **changes: Any) -> list[Op]:
    record = msgspec.structs.replace(entry.record, **changes)
    if record == entry.record:
        return []
    return [Set(paths.bundle(record.id), encode(record), entry.version)]


def upload_ops(
    snapshot: ClusterSnapshot,
    bundle: BundleId,
    meta: Metafile,
    min_replicas: int,
    now: float,
    recipe: str = "",
    uploader: Uploader = ANYBODY,
) -> Sequence[Op]:
    """Opens an upload; raises `conflict` if the id has other content.

    The same content changes nothing, or brings the record to life again. An old minimum of replicas
    counts no longer where fewer masters are left, or where the bundle has no holders.
    """
    entry = snapshot.bundles.get(bundle)
    if entry is not None and entry.record.digest != meta.digest:
        raise other_content(entry.record)
    if entry is None:
        check_can_read(snapshot, meta)
        record = BundleRecord(
            id=bundle,
            digest=meta.digest,
            size=meta.size,
            files=len(meta.files),
            state=BundleState.UPLOADING,
            min_replicas=min_replicas,
            created_at=now,
            recipe=recipe,
            owner=uploader.name,
            sources=uploader.reads,
        )
        return [Create(paths.bundle(bundle), encode(record))]
    if entry.record.state is BundleState.REMOVED:
        begun = {"state": BundleState.UPLOADING, "min_replicas": min_replicas, "created_at": now}
        return _rewrite(entry, **begun, owner=uploader.name, sources=uploader.reads)
    if entry.record.state is not BundleState.UPLOADING and not snapshot.holders(bundle):
        return _rewrite(entry, min_replicas=min_replicas)
    attainable = min(entry.record.min_replicas, len(snapshot.masters))
    return _rewrite(entry, min_replicas=max(min_replicas, attainable))


def signing_ops(snapshot: ClusterSnapshot, bundle: BundleId, envelope: Envelope) -> Sequence[Op]:
    """Adds an envelope with one signature, unless it is there. Refuses one that is about anything
    else than this bundle."""
    entry = _live(snapshot, bundle)
    check_can_sign(snapshot)
    record, what = entry.record, f"bundle {bundle!r}"
    said = parse_statement(envelope, BundleStatement, what)
    wanted = BundleStatement(cluster=said.cluster, id=record.id, digest=record.digest)
    if detail := difference(said, wanted):
        raise TorrentdistError("bad_signature", what=what, detail=detail)
    if envelope in record.signatures:
        return []
    if len(record.signatures) + len(envelope.signatures) > MAX_SIGNATURES:
        raise TorrentdistError("too_many_signatures", id=bundle, count=len(record.signatures))
    return _rewrite(entry, signatures=(*record.signatures, envelope))


def check_can_sign(snapshot: ClusterSnapshot) -> None:
    """Raises `not_ready` while a daemon is registered whose release would lose a signature."""
    if snapshot.cluster is not None and snapshot.cluster.schema < SIGNING_SCHEMA:
        detail = "signatures are kept once every daemon runs this release"
        raise TorrentdistError("not_ready", detail=detail)


def check_can_read(snapshot: ClusterSnapshot, meta: Metafile) -> None:
    """Raises `invalid_metafile` while a daemon is registered whose release reads neither packs nor
    modes. The client then uploads without."""
    if (meta.packed.files or meta.modes) and snapshot.cluster is not None and snapshot.cluster.schema < PACKING_SCHEMA:
        detail = "small files are packed once every daemon runs this release"
        raise TorrentdistError("invalid_metafile", detail=detail)


def removal_ops(snapshot: ClusterSnapshot, bundle: BundleId, index: RecordIndex | None = None) -> Sequence[Op]:
    """Takes the bundle out of every assignment, then writes its tombstone. Its distribution ends
    first: it would go on telling the hosts.

    `index`: of this snapshot, if there is one.
    """
    index = index or RecordIndex.of(snapshot)
    entry = _live(snapshot, bundle)
    if entry.record.pinned:
        raise TorrentdistError("in_use", id=bundle, detail="it is pinned")
    users = index.live_jobs_of(bundle)
    if users:
        raise TorrentdistError("in_use", id=bundle, detail=f"job {users[0]} needs it")
    order, ended = snapshot.distributions.get(bundle), list[Op]()
    if order is not None and not order.record.is_over:
        ended = end_ops(order, DistributionState.CANCELLED, "its bundle is removed")
    untold = untell_ops(snapshot, bundle, index.told_to_keep(bundle))
    return [*ended, *untold, *_rewrite(entry, state=BundleState.REMOVED)]
