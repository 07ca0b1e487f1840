"""Removes the bundles that nobody uses, for `prune --cluster`.

Always: a bundle stays if it is pinned, uploading, needed by a live job, assigned to a host, under
distribution, wanted by a standing order, promised to hosts for a time, or younger than asked for;
and if a damaged record may say so.
Never: run by itself. The author of an unused bundle may need it tomorrow.
"""

from collections.abc import Sequence

from torrentdist.cluster import paths
from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Op
from torrentdist.master.bundles.bundle_operations import BATCH, removal_ops
from torrentdist.master.changes.answered_requests import Mutation
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.master_session import MasterSession
from torrentdist.master.policies.retention_rules import may_be_needed
from torrentdist.model.ids import BundleId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.bundle_messages import UnprunedView, UnusedBundle, UnusedView


class Pruning:
    def __init__(self, session: MasterSession, changes: LeaderChanges) -> None:
        self._session = session
        self._changes = changes

    async def prune(self, mutation: Mutation | None, older_than: float) -> bytes:
        """Removes the bundles that nobody uses."""
        removed: dict[BundleId, UnusedBundle] = {}
        kept: dict[BundleId, tuple[str, ...]] = {}

        def decide(snapshot: ClusterSnapshot) -> Sequence[Op]:
            now = self._session.server_now()
            why = why_kept(snapshot, now, older_than)
            removed.update({id_: _unused(snapshot.bundles[id_], now) for id_, reasons in why.items() if not reasons})
            kept.clear()
            kept.update({id_: reasons for id_, reasons in why.items() if reasons})
            return prune_ops(snapshot, now, older_than)

        def view(snapshot: ClusterSnapshot) -> UnusedView:
            """Tells what is removed now: what an earlier decision would have removed may stay."""
            for id_ in [id_ for id_ in removed if is_there(snapshot, id_)]:
                del removed[id_]
            stays = tuple(UnprunedView(id=id_, reasons=list(reasons)) for id_, reasons in kept.items())
            goes = tuple(removed[id_] for id_ in sorted(removed))
            size = sum(bundle.size for bundle in goes)
            return UnusedView(removed=sorted(removed), bytes=size, kept=len(kept), stays=stays, goes=goes)

        return await self._changes.make_alone(mutation, decide, view, batch=BATCH, shorten=UnusedView.shortened)


def is_there(snapshot: ClusterSnapshot, bundle: BundleId) -> bool:
    entry = snapshot.bundles.get(bundle)
    return entry is not None and entry.record.state is not BundleState.REMOVED


def _unused(entry: BundleEntry, now: float) -> UnusedBundle:
    return UnusedBundle(id=entry.record.id, size=entry.record.size, unchanged_secs=max(0.0, now - entry.mtime))


def why_kept(snapshot: ClusterSnapshot, server_now: float, older_than: float) -> dict[BundleId, tuple[str, ...]]:
    """Returns, for each bundle that is not removed, the reasons why it stays. No reasons: nobody
    uses it."""
    index = RecordIndex.of(snapshot)

    def reasons(id_: BundleId, entry: BundleEntry) -> tuple[str, ...]:
        lately = ("written_lately",) if server_now - entry.mtime < older_than else ()
        return (*uses_of(snapshot, id_, index), *lately)

    there = ((id_, e) for id_, e in sorted(snapshot.bundles.items()) if e.record.state is not BundleState.REMOVED)
    return {id_: reasons(id_, entry) for id_, entry in there}


def uses_of(snapshot: ClusterSnapshot, bundle: BundleId, index: RecordIndex) -> tuple[str, ...]:
    """Returns why a bundle stays, however old it is."""
    record, order = snapshot.bundles[bundle].record, snapshot.distributions.get(bundle)
    holds = {
        "pinned": record.pinned,
        "uploading": record.state is BundleState.UPLOADING,
        "needed": bool(index.live_jobs_of(bundle)),
        "assigned": index.count_told(bundle) > 0,
        "unreadable": may_be_needed(snapshot, bundle) or any(_is_assignment(path) for path in snapshot.damaged),
        **({} if order is None else order.record.claims),
    }
    return tuple(reason for reason, applies in holds.items() if applies)


def _is_assignment(path: str) -> bool:
    return paths.parent(path) == paths.ASSIGNMENTS


def unused(snapshot: ClusterSnapshot, server_now: float, older_than: float) -> list[BundleEntry]:
    """Returns the bundles that have no reason to stay."""
    return [snapshot.bundles[id_] for id_, why in why_kept(snapshot, server_now, older_than).items() if not why]


def prune_ops(snapshot: ClusterSnapshot, server_now: float, older_than: float) -> Sequence[Op]:
    index = RecordIndex.of(snapshot)
    doomed = unused(snapshot, server_now, older_than)
    return [op for entry in doomed for op in removal_ops(snapshot, entry.record.id, index)]
