"""A request to distribute a bundle: what it asks for, and the record that it becomes. Pure.

Always: what it asks for is checked before anything is written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Op
from torrentdist.master.bundles.bundle_views import ALIVE, entry_of, not_found
from torrentdist.master.policies.distribution_changes import chosen, record_ops, tell_ops, with_labels
from torrentdist.master.policies.quotas import check_distributions
from torrentdist.master.policies.repeated_orders import ordered_again
from torrentdist.master.policies.wave_plan import waves
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.policies.bundle_terms import ANY_TERMS, BundleTerms
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState
from torrentdist.model.records import BundleState
from torrentdist.model.wire.fleet_messages import DistributeBody

MOST_HOSTS = 1_000_000
MOST_RATE = 2**50
LONGEST_SECS = 100 * 365 * 86400.0


@dataclass(frozen=True)
class DistributionOrder:
    bundle: BundleId
    supervisors: Sequence[SupervisorId] | None = None
    """The supervisors that should get the bundle. None: those with the labels."""
    labels: Mapping[str, str] = field(default_factory=dict)
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
