"""Removes the bundles that nobody uses, for `prune --cluster`.

Always: a bundle stays if it is pinned, uploading, needed by a live job, assigned to a host, or
younger than asked for.
Never: run by itself. The author of an unused bundle may need it tomorrow.
"""

from __future__ import annotations

from collections.abc import Sequence

from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Op
from torrentdist.master.bundles.bundle_operations import BATCH, removal_ops
from torrentdist.master.changes.answered_requests import Mutation
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.master_session import MasterSession
from torrentdist.model.ids import BundleId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.prune_views import UnusedView


class Pruning:
    def __init__(self, session: MasterSession, changes: LeaderChanges) -> None:
        self._session = session
        self._changes = changes

    async def prune(self, mutation: Mutation | None, older_than: float, dry_run: bool) -> bytes:
        """Removes the bundles that nobody uses, or only names them."""
        removed: dict[BundleId, int] = {}

        def decide(snapshot: ClusterSnapshot) -> Sequence[Op]:
            now = self._session.server_now()
            removed.update({e.record.id: e.record.size for e in unused(snapshot, now, older_than)})
            return [] if dry_run else prune_ops(snapshot, now, older_than)

        def view(snapshot: ClusterSnapshot) -> UnusedView:
            there = sum(e.record.state is not BundleState.REMOVED for e in snapshot.bundles.values())
            kept = there - len(removed) if dry_run else there
            return UnusedView(removed=sorted(removed), bytes=sum(removed.values()), kept=kept)

        return await self._changes.make_alone(mutation, decide, view, batch=BATCH)


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
    index = RecordIndex.of(snapshot)
    doomed = unused(snapshot, server_now, older_than)
    return [op for entry in doomed for op in removal_ops(snapshot, entry.record.id, index)]
