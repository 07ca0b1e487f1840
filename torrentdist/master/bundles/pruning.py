"""Finds the bundles that nobody uses, for `prune`. Pure.

Always: a bundle stays if it is pinned, uploading, needed by a live job, assigned to a host, or
younger than asked for.
Never: run by itself. The author of an unused bundle may need it tomorrow.
"""

from __future__ import annotations

from collections.abc import Sequence

from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Op
from torrentdist.master.bundles.bundle_operations import removal_ops
from torrentdist.model.records import BundleState


def unused(snapshot: ClusterSnapshot, server_now: float, older_than: float) -> list[BundleEntry]:
    """Returns unused bundles whose record was last written at least `older_than` seconds ago."""
    kept = {bundle for job in snapshot.jobs.values() if job.record.live for bundle in job.record.needs}
    kept |= {bundle for entry in snapshot.assignments.values() for bundle in entry.record.bundles}
    return [
        entry
        for id_, entry in sorted(snapshot.bundles.items())
        if entry.record.state in (BundleState.AVAILABLE, BundleState.LOST)
        and not entry.record.pinned
        and id_ not in kept
        and server_now - entry.mtime >= older_than
    ]


def prune_ops(snapshot: ClusterSnapshot, server_now: float, older_than: float) -> Sequence[Op]:
    return [op for entry in unused(snapshot, server_now, older_than) for op in removal_ops(snapshot, entry.record.id)]
