"""Decides whether an elected master may lead: it must hold every bundle of every live job. Pure.

Always: a bundle that is marked lost or removed keeps no master from leading. A bundle is absent
only while no registered master and no peer has a complete copy. The time of its absence is measured
on the clock of the master that watches.
"""

from collections.abc import Callable, Collection, Mapping

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleState

BARRING = (BundleState.AVAILABLE, BundleState.UPLOADING)


def needed(snapshot: ClusterSnapshot) -> frozenset[BundleId]:
    """Returns the bundles of live jobs."""
    return frozenset(bundle for job in snapshot.jobs.values() if job.record.live for bundle in job.record.needs)


def missing(
    snapshot: ClusterSnapshot, published: Collection[Digest], wanted: Collection[BundleId] | None = None
) -> list[BundleId]:
    """Returns the bundles of live jobs that this master must fetch before it leads.

    `wanted`: the result of needed(), if it is known.
    """
    entries = ((b, snapshot.bundles.get(b)) for b in sorted(needed(snapshot) if wanted is None else wanted))
    return [
        bundle
        for bundle, entry in entries
        if entry is not None and entry.record.state in BARRING and entry.record.digest not in published
    ]


def behind(snapshot: ClusterSnapshot, published: Collection[Digest]) -> bool:
    """Whether this master lacks a bundle that others hold."""
    return any(
        entry.record.state is BundleState.AVAILABLE and entry.record.digest not in published and snapshot.holders(id_)
        for id_, entry in snapshot.bundles.items()
    )


def others_have(snapshot: ClusterSnapshot, bundles: Collection[BundleId]) -> bool:
    """Whether some live master has all of these bundles, and should lead instead."""
    holders = [set(snapshot.holders(bundle)) for bundle in bundles]
    return bool(holders) and bool(set.intersection(*holders))


def yields_for(
    snapshot: ClusterSnapshot, published: Collection[Digest], wanted: Collection[BundleId]
) -> BundleId | None:
    """Returns a bundle that this leader lacks, if another master has all that are `wanted`. One
    that lacks another of them could not lead either."""
    lacks = missing(snapshot, published, wanted)
    return lacks[0] if lacks and others_have(snapshot, missing(snapshot, (), wanted)) else None


def absences(
    before: Mapping[BundleId, float],
    absent_here: Mapping[BundleId, Digest],
    seen_elsewhere: Callable[[Digest], bool],
    now: float,
) -> dict[BundleId, float]:
    """Returns when each bundle without holders began to be absent. `before`: the previous
    result."""
    return {bundle: before.get(bundle, now) for bundle, digest in absent_here.items() if not seen_elsewhere(digest)}


def absent(snapshot: ClusterSnapshot, bundle: BundleId) -> Digest | None:
    """Returns the digest of an available bundle that no live master holds; None for all others."""
    record = snapshot.bundles[bundle].record
    return record.digest if record.state is BundleState.AVAILABLE and not snapshot.holders(bundle) else None


def lost(since: Mapping[BundleId, float], now: float, lost_secs: float) -> list[BundleId]:
    return sorted(bundle for bundle, began in since.items() if now - began >= lost_secs)
