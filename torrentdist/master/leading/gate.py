"""Decides whether an elected master may lead: it must hold every bundle of every live job. Pure.

Always: a bundle that is marked lost or removed keeps no master from leading. A bundle is absent
only while no registered master and no peer has a complete copy. The time of its absence is measured
on the clock of the master that watches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleState

BARRING = (BundleState.AVAILABLE, BundleState.UPLOADING)


def needed(snapshot: ClusterSnapshot) -> frozenset[BundleId]:
    """The bundles of live jobs."""
    return frozenset(bundle for job in snapshot.jobs.values() if job.record.live for bundle in job.record.needs)


def missing(
    snapshot: ClusterSnapshot, published: Collection[Digest], wanted: Collection[BundleId] | None = None
) -> list[BundleId]:
    """The bundles of live jobs that this master lacks and has to get before it leads. `wanted`:
    `needed`, if known."""
    entries = ((b, snapshot.bundles.get(b)) for b in sorted(needed(snapshot) if wanted is None else wanted))
    return [
        bundle
        for bundle, entry in entries
        if entry is not None and entry.record.state in BARRING and entry.record.digest not in published
    ]


def behind(snapshot: ClusterSnapshot, published: Collection[Digest]) -> bool:
    """Whether a master still has to catch up: it lacks what others hold."""
    return any(
        entry.record.state is BundleState.AVAILABLE and entry.record.digest not in published and snapshot.holders(id_)
        for id_, entry in snapshot.bundles.items()
    )


def others_have(snapshot: ClusterSnapshot, bundles: Collection[BundleId]) -> bool:
    """Whether some live master has all of these: then it had better lead."""
    holders = [set(snapshot.holders(bundle)) for bundle in bundles]
    return bool(holders) and bool(set.intersection(*holders))


def absences(
    before: Mapping[BundleId, float],
    absent_here: Mapping[BundleId, Digest],
    seen_elsewhere: Callable[[Digest], bool],
    now: float,
) -> dict[BundleId, float]:
    """Since when nobody has each bundle that no master holds; `before` is the last answer of this
    very function."""
    return {bundle: before.get(bundle, now) for bundle, digest in absent_here.items() if not seen_elsewhere(digest)}


def absent(snapshot: ClusterSnapshot, bundle: BundleId) -> Digest | None:
    """The digest of an available bundle that no live master holds; None for all others."""
    record = snapshot.bundles[bundle].record
    return record.digest if record.state is BundleState.AVAILABLE and not snapshot.holders(bundle) else None


def lost(since: Mapping[BundleId, float], now: float, lost_secs: float) -> list[BundleId]:
    return sorted(bundle for bundle, began in since.items() if now - began >= lost_secs)
