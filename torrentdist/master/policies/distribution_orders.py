"""Requests to distribute a bundle: what one asks for, the record that it becomes, and how the
API begins, cancels and shows distributions.

Always: what a request asks for is checked before anything is written. A repeated one begins or
cancels once. A host's state is shown as the host announced it.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Op
from torrentdist.master.bundles.bundle_operations import BATCH
from torrentdist.master.bundles.bundle_views import ALIVE, entry_of, fleet_view, not_found
from torrentdist.master.changes.answered_requests import Mutation
from torrentdist.master.changes.commit import LeaderChanges, Render
from torrentdist.master.policies.distribution_changes import (
    cancel_ops,
    chosen,
    hosts_of,
    record_ops,
    tell_ops,
    told_of,
    with_labels,
)
from torrentdist.master.policies.quotas import check_distributions
from torrentdist.master.policies.repeated_orders import ordered_again
from torrentdist.master.policies.wave_plan import current_wave, waves
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError, required
from torrentdist.model.ids import BundleId, Digest, PeerId, SupervisorId
from torrentdist.model.policies.bundle_terms import ANY_TERMS, BundleTerms
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState
from torrentdist.model.policies.policy_messages import DistributionStatusView
from torrentdist.model.records import BundleState
from torrentdist.model.wire.fleet_messages import DistributeBody, HostState
from torrentdist.model.wire.swarm_messages import SwarmEntry
from torrentdist.model.wire.view import view_of

MOST_HOSTS = 1_000_000
MOST_RATE = 2**50
LONGEST_SECS = 100 * 365 * 86400.0


class DistributionOrder(msgspec.Struct, frozen=True):
    bundle: BundleId
    supervisors: Sequence[SupervisorId] | None = None
    """The supervisors that should get the bundle. None: those with the labels."""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    owner: str = ""
    share: float = 1.0
    canary: int = 0
    concurrency: int = 0
    everywhere: bool = False
    keep_secs: float = 0.0
    terms: BundleTerms = ANY_TERMS


def order_of(bundle: BundleId, body: DistributeBody, owner: str) -> DistributionOrder:
    """Returns what a request asks for. Raises an error if the request is wrong."""
    named = None if body.supervisors is None else [ids.supervisor_id(s) for s in body.supervisors]
    wrong = [
        ("everywhere is for labels, not for named supervisors", body.everywhere and named is not None),
        ("everywhere is for all hosts, not for a share", body.everywhere and body.share != 1.0),
        ("share is more than 0 and at most 1", not 0 < body.share <= 1),
        ("canary and concurrency are numbers of hosts", not 0 <= body.canary <= MOST_HOSTS),
        ("canary and concurrency are numbers of hosts", not 0 <= body.concurrency <= MOST_HOSTS),
        ("keep_secs is 0 to 100 years", not 0 <= body.keep_secs <= LONGEST_SECS),
        ("rate is a number of bytes per second", not 0 <= body.rate <= MOST_RATE),
    ]
    for detail, is_wrong in wrong:
        if is_wrong:
            raise TorrentdistError("invalid_request", detail=detail)
    return DistributionOrder(
        bundle=bundle,
        supervisors=named,
        labels=body.labels,
        owner=owner,
        share=body.share,
        canary=body.canary,
        concurrency=body.concurrency,
        everywhere=body.everywhere,
        keep_secs=body.keep_secs,
        terms=BundleTerms(rate=body.rate, priority=body.priority),
    )


def targets(
    snapshot: ClusterSnapshot, supervisors: Sequence[SupervisorId] | None, labels: Mapping[str, str]
) -> list[SupervisorId]:
    """Returns the named supervisors, or those that have all the labels.

    An unknown name is `not_found`.
    """
    if supervisors is None:
        return with_labels(snapshot, labels)
    for id_ in supervisors:
        if id_ not in snapshot.supervisors:
            raise TorrentdistError("not_found", what=f"supervisor {id_!r}")
    return sorted(set(supervisors))


def record_of(snapshot: ClusterSnapshot, order: DistributionOrder, now: float) -> DistributionRecord:
    """Returns the record of an order that is given now."""
    entry = entry_of(snapshot, order.bundle, *ALIVE)
    if entry.record.state is BundleState.UPLOADING:
        raise not_found(order.bundle, entry)
    hosts = targets(snapshot, order.supervisors, order.labels)
    return DistributionRecord(
        bundle=order.bundle,
        owner=order.owner,
        begun_at=now,
        hosts=tuple(chosen(hosts, order.share, order.bundle)),
        canary=order.canary,
        concurrency=order.concurrency,
        everywhere=order.everywhere,
        labels=dict(order.labels),
        ends_at=now + order.keep_secs if order.keep_secs else None,
        terms=order.terms,
    )


def order_ops(snapshot: ClusterSnapshot, order: DistributionOrder, now: float) -> Sequence[Op]:
    """Writes the record of a distribution, and tells the hosts of its first wave."""
    record = record_of(snapshot, order, now)
    check_distributions(snapshot, order.owner, order.bundle)
    if not (record.hosts or record.everywhere):
        return []
    entry, written = snapshot.distributions.get(order.bundle), list[Op]()
    known = None if entry is None else entry.record
    if known is not None and known.begun_at == now:
        record = known
    else:
        record = ordered_again(known, record, with_labels(snapshot, known.labels) if known is not None else ())
        written = record_ops(snapshot, record)
    if record.state is not DistributionState.RUNNING:
        return []
    first = waves(record)[0] if record.hosts else ()
    return [*written, *tell_ops(snapshot, record, first)]


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
    entry = required(snapshot.distributions.get(bundle), "not_found", what=f"a distribution of bundle {bundle!r}")
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
