"""Distributions as the API changes them: begin one, cancel it, and show them.

Always: a repeated request begins or cancels once. A host's state is shown as the host announced it.
"""

from collections.abc import Callable, Mapping

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.bundles.bundle_operations import BATCH
from torrentdist.master.bundles.bundle_views import fleet_view
from torrentdist.master.changes.answered_requests import Mutation
from torrentdist.master.changes.commit import LeaderChanges, Render
from torrentdist.master.policies.distribution_changes import cancel_ops, hosts_of, told_of
from torrentdist.master.policies.distribution_orders import DistributionOrder, order_ops
from torrentdist.master.policies.wave_plan import current_wave, waves
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, PeerId, SupervisorId
from torrentdist.model.policies.policy_messages import DistributionStatusView
from torrentdist.model.wire.fleet_messages import HostState
from torrentdist.model.wire.swarm_messages import SwarmEntry
from torrentdist.model.wire.view import view_of

Members = Callable[[Digest], Mapping[PeerId, SwarmEntry]]
"""Returns what each peer of a swarm said of itself last."""


class DistributionOperations:
    """`now` returns the time by ZooKeeper's clock; by ours while it is unknown."""

    def __init__(self, changes: LeaderChanges, members: Members, now: Callable[[], float]) -> None:
        self._changes = changes
        self._members = members
        self._now = now

    async def begin(self, mutation: Mutation | None, order: DistributionOrder, render: Render) -> bytes:
        """Begins a distribution, in batches. The first batch claims the request id.

        One begins at a time, and no rule removes the bundle meanwhile.
        """
        now = self._now()
        return await self._changes.make_alone(mutation, lambda s: order_ops(s, order, now), render, batch=BATCH)

    async def cancel(self, mutation: Mutation | None, bundle: BundleId) -> bytes:
        """Ends a distribution. Hosts that have the bundle keep it, the others give up."""

        def done(snapshot: ClusterSnapshot) -> set[SupervisorId]:
            return done_hosts(snapshot, bundle, self._members)

        return await self._changes.make(
            mutation,
            lambda s: cancel_ops(s, bundle, done(s)),
            lambda s: distribution_view(s, bundle),
            batch=BATCH,
        )


def done_hosts(snapshot: ClusterSnapshot, bundle: BundleId, members: Members) -> set[SupervisorId]:
    """Returns the hosts that were told to keep a bundle and have all of it."""
    if bundle not in snapshot.bundles:
        return set()
    fleet = fleet_view(snapshot, bundle, members(snapshot.bundles[bundle].record.digest))
    return {host.supervisor for host in fleet.hosts if host.state is HostState.DONE}


def distribution_view(snapshot: ClusterSnapshot, bundle: BundleId) -> DistributionStatusView:
    entry = snapshot.distributions.get(bundle)
    if entry is None:
        raise TorrentdistError("not_found", what=f"a distribution of bundle {bundle!r}")
    record = entry.record
    hosts = hosts_of(snapshot, record)
    told = told_of(snapshot, bundle, hosts)
    return view_of(
        DistributionStatusView,
        record,
        bundle=bundle,
        state=record.state.value,
        hosts=len(hosts),
        told=len(told),
        wave=current_wave(record, told),
        waves=len(waves(record)),
        rate=record.terms.rate,
        priority=record.terms.priority.value,
    )
