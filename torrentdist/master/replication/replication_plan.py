"""Decides which bundles a master fetches, announces and drops.

Pure: the cluster's records and the state of the store in, actions out.
Always: a replica record stands for bytes that this very store has published, and is withdrawn when
they are gone. Only a tombstone drops a bundle. A missing record, or a missing tree, drops none:
content that this store has under an id without a record stays, also if another id of it was
removed.
Never: decide what the leader decides for the whole cluster.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot
from torrentdist.model.ids import BundleId, Digest, MasterId, StoreId
from torrentdist.model.records import BundleState

SILENT_SECS = 300.0
"""How long after the last request of its uploader an upload over HTTP is given up, so that the
swarm may bring the content. An uploader that comes back later sends it again."""


class FetchReplica(msgspec.Struct, frozen=True):
    bundle: BundleId
    digest: Digest


class PublishReplica(msgspec.Struct, frozen=True):
    bundle: BundleId
    digest: Digest


class WithdrawReplica(msgspec.Struct, frozen=True):
    bundle: BundleId


class DropReplica(msgspec.Struct, frozen=True):
    digest: Digest


class ForgetName(msgspec.Struct, frozen=True):
    """Forget the id of a removed bundle whose content stays."""

    bundle: BundleId


class Abandon(msgspec.Struct, frozen=True):
    """Drop what has arrived of an upload that was given up."""

    digest: Digest


_Wanted = tuple[bool, float, int, BundleId, Digest]
"""A fetch that may begin: whether it is no upload, until when it rested if nobody has it, the
number of its holders, and what it is."""
Action = Abandon | FetchReplica | ForgetName | PublishReplica | WithdrawReplica | DropReplica


Names = Callable[[Digest], Collection[BundleId]]


def no_names(digest: Digest) -> Collection[BundleId]:
    return ()


class Local(msgspec.Struct, frozen=True):
    """What this master has and does now."""

    me: MasterId
    store: StoreId
    published: frozenset[Digest]
    arriving: frozenset[Digest]
    fetching: frozenset[Digest]
    stale: frozenset[Digest] = frozenset()
    """Arriving digests whose upload was begun long ago and was never published here."""
    not_before: Mapping[Digest, float] = msgspec.field(default_factory=dict)
    """time.monotonic() before which a failed fetch is not tried again."""
    parallel: int = 4
    """How many fetches may run at once; uploads do not count."""
    joins_uploads: bool = True
    """Whether the plug-in can fetch while the uploader is the only source."""
    leading: bool = False
    schema: int = 0
    """Schema that the cluster's records are written in."""
    names: Names = no_names
    """Returns the ids that stand for a content in this store."""


def plan(
    snapshot: ClusterSnapshot,
    local: Local,
    now: float,
    among: Collection[BundleId] | None = None,
    index: RecordIndex | None = None,
) -> list[Action]:
    """Returns the next actions.

    `among`: the bundles to look at; None: all of them. `index`: of this snapshot, if there is one.
    """
    if not snapshot.present:
        return []
    actions: list[Action] = []
    wanted: list[_Wanted] = []
    removed: set[Digest] = set()
    for bundle in snapshot.bundles if among is None else sorted(among):
        entry = snapshot.bundles[bundle]
        if entry.record.state is BundleState.REMOVED:
            removed.add(entry.record.digest)
            if local.me in entry.replicas:
                actions.append(WithdrawReplica(bundle))
        elif entry.record.digest in local.published:
            if not _announced(entry, local):
                actions.append(PublishReplica(bundle, entry.record.digest))
        else:
            if local.me in entry.replicas:
                actions.append(WithdrawReplica(bundle))
            if _may_fetch(entry, local, now):
                holders = len(snapshot.holders(bundle))
                uploading = entry.record.state is BundleState.UPLOADING
                rested = 0.0 if holders else local.not_before.get(entry.record.digest, 0.0)
                wanted.append((not uploading, rested, holders, bundle, entry.record.digest))
    removed = {digest for digest in removed if _is_here(local, digest) or local.names(digest)}
    stale = local.stale - local.fetching
    if stale or removed:
        index = index or RecordIndex.of(snapshot)
        actions += [Abandon(digest) for digest in sorted(stale) if not index.bundles_of(digest)]
        for digest in sorted(removed):
            actions += _dropped(snapshot, index, local, digest)
    return actions + (_chosen(wanted, _room(snapshot, local, index)) if wanted else [])


def _is_here(local: Local, digest: Digest) -> bool:
    return digest in local.published or digest in local.arriving


def _dropped(snapshot: ClusterSnapshot, index: RecordIndex, local: Local, digest: Digest) -> list[Action]:
    """Returns what becomes of content that a removed bundle had."""
    names = local.names(digest)
    stays = digest in local.published and is_unrecorded(snapshot, names)
    if _is_here(local, digest) and not stays and not is_alive(snapshot, index, digest):
        # Its records go first: they must not count as copies if the bundle is uploaded again.
        recorded = any(local.me in snapshot.bundles[id_].replicas for id_ in index.bundles_of(digest))
        return [] if recorded else [DropReplica(digest)]
    known = [(name, snapshot.bundles[name]) for name in sorted(names) if name in snapshot.bundles]
    gone = [name for name, entry in known if entry.record.state is BundleState.REMOVED]
    return [ForgetName(name) for name in gone if local.me not in snapshot.bundles[name].replicas]


def _announced(entry: BundleEntry, local: Local) -> bool:
    mine = entry.replicas.get(local.me)
    return (
        mine is not None
        and mine.schema >= local.schema
        and mine.store == local.store
        and mine.digest == entry.record.digest
    )


def _may_fetch(entry: BundleEntry, local: Local, now: float) -> bool:
    digest = entry.record.digest
    if digest in local.fetching or local.not_before.get(digest, now) > now:
        return False
    return entry.record.state is not BundleState.UPLOADING or local.joins_uploads or local.leading


def is_alive(snapshot: ClusterSnapshot, index: RecordIndex, digest: Digest) -> bool:
    """Whether some bundle with this content is not removed.

    A removed bundle may share its content with it.
    """
    entries = (snapshot.bundles[bundle] for bundle in index.bundles_of(digest))
    return any(entry.record.state is not BundleState.REMOVED for entry in entries)


def is_unrecorded(snapshot: ClusterSnapshot, names: Iterable[BundleId]) -> bool:
    """Whether no record says anything of one of these ids: a backup that was restored may be older
    than its upload. Nobody has removed it."""
    return any(name not in snapshot.bundles for name in names)


def awaits_bytes(snapshot: ClusterSnapshot, bundles: Iterable[BundleId]) -> bool:
    """Whether the content of these bundles may come from an uploader: one of them is being
    uploaded, or has no holder left."""
    entries = [(bundle, snapshot.bundles[bundle].record.state) for bundle in bundles]
    live = [(bundle, state) for bundle, state in entries if state is not BundleState.REMOVED]
    return any(state is BundleState.UPLOADING or not snapshot.holders(bundle) for bundle, state in live)


def was_never_complete(snapshot: ClusterSnapshot, bundles: Iterable[BundleId]) -> bool:
    """Whether no host has had all of this content, unless it was removed. Otherwise what a host has
    left of it may be the last there is."""
    states = {snapshot.bundles[bundle].record.state for bundle in bundles}
    return states <= {BundleState.UPLOADING, BundleState.REMOVED}


def may_go_on(snapshot: ClusterSnapshot, bundles: Iterable[BundleId], me: MasterId, silent: float) -> bool:
    """Whether an upload over HTTP to this master may go on, `silent` seconds after its uploader was
    heard. A pause of ZooKeeper does not end it; another leader does."""
    return snapshot.leader in (None, me) and silent < SILENT_SECS and awaits_bytes(snapshot, bundles)


def is_settled(snapshot: ClusterSnapshot, local: Local, bundle: BundleId) -> bool:
    """Whether a bundle needs no further look until its record or this master's store changes."""
    entry = snapshot.bundles.get(bundle)
    if entry is None:
        return True
    digest = entry.record.digest
    if entry.record.state is BundleState.REMOVED:
        has_name = bundle in local.names(digest)
        return not (local.me in entry.replicas or has_name or digest in local.published or digest in local.arriving)
    return digest in local.published and _announced(entry, local)


def _room(snapshot: ClusterSnapshot, local: Local, index: RecordIndex | None) -> int:
    """Returns how many bundles may be fetched that are no uploads. Uploads take none of this room,
    since they may never send anything."""
    index = index or RecordIndex.of(snapshot)
    running = [d for d in local.fetching if not was_never_complete(snapshot, index.bundles_of(d))]
    return local.parallel - len(running)


def _chosen(wanted: list[_Wanted], room: int) -> list[Action]:
    """Returns the fetches to begin now: uploads first, since somebody waits for them, then the
    rarest bundles. What nobody has comes last once it has failed, and what has rested longest
    first: it must not keep all room.
    """
    chosen: dict[Digest, Action] = {}
    for not_uploading, _, _, bundle, digest in sorted(wanted):
        if digest not in chosen and (room > 0 or not not_uploading):
            chosen[digest] = FetchReplica(bundle, digest)
            room -= not_uploading
    return list(chosen.values())
