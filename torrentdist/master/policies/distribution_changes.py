"""The changes of distributions as ZooKeeper operations: begin, tell hosts, end, cancel, release.

Pure: each is a function of a snapshot.
Always: a distribution whose request is repeated begins once. Only hosts that have the whole bundle
keep it after a cancellation.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot, DistributionEntry
from torrentdist.cluster.session.znode_operations import Create, Delete, Op, Set
from torrentdist.master.changes.assignment_room import why_untold
from torrentdist.model.errors import TorrentdistError, required
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.policies.bundle_terms import ANY_TERMS
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState, HostsUntil
from torrentdist.model.records import AssignmentRecord, BundleState, encode
from torrentdist.model.rendezvous import rendezvous

MOST_RECORD_BYTES = 512 * 1024
"""Largest record of a distribution; ZooKeeper takes 1 MB."""
KEEP_SECS = 7 * 86400.0
"""How long the record of a distribution that is over is kept."""
SHOWN_SECS = 30.0
"""For how long the hosts keep the bundle at least after the last wave. Clients that wait look every
few seconds and see that the hosts have it."""

Decide = Callable[[ClusterSnapshot], Sequence[Op]]


def chosen(hosts: Sequence[SupervisorId], share: float, bundle: BundleId) -> list[SupervisorId]:
    """Returns a share of the hosts. A larger share holds the smaller ones, and each bundle has
    another part of the hosts."""
    count = -(-len(hosts) * round(share * 1_000_000) // 1_000_000)
    first = set(rendezvous(hosts, bundle)[:count])
    return [host for host in hosts if host in first]


def told_of(snapshot: ClusterSnapshot, bundle: BundleId, hosts: Iterable[SupervisorId]) -> set[SupervisorId]:
    """Returns those of the hosts whose assignment names the bundle."""
    assignments = snapshot.assignments
    return {host for host in hosts if host in assignments and bundle in assignments[host].record.bundles}


def hosts_of(snapshot: ClusterSnapshot, record: DistributionRecord) -> list[SupervisorId]:
    """Returns every host that a distribution is for, in the order of its waves."""
    if not record.everywhere:
        return list(record.hosts)
    return list(dict.fromkeys([*record.hosts, *with_labels(snapshot, record.labels)]))


def _reached(snapshot: ClusterSnapshot, record: DistributionRecord) -> list[SupervisorId]:
    """Returns every host that a distribution may have told. The labels of hosts that are away are
    not known, so a standing order may have told each of them."""
    away = [host for host in snapshot.assignments if host not in snapshot.supervisors] if record.everywhere else []
    return [*hosts_of(snapshot, record), *told_of(snapshot, record.bundle, away)]


def with_labels(snapshot: ClusterSnapshot, labels: Mapping[str, str]) -> list[SupervisorId]:
    return sorted(id_ for id_, s in snapshot.supervisors.items() if labels.items() <= s.labels.items())


def record_ops(snapshot: ClusterSnapshot, record: DistributionRecord) -> list[Op]:
    """Writes the record of a distribution."""
    path, known = paths.distribution(record.bundle), snapshot.distributions.get(record.bundle)
    data = encode(record)
    if len(data) > MOST_RECORD_BYTES:
        what = "the record of a distribution, in bytes,"
        raise TorrentdistError("too_large", what=what, size=len(data), limit=MOST_RECORD_BYTES)
    return [Create(path, data) if known is None else Set(path, data, known.version)]


def tell_ops(snapshot: ClusterSnapshot, record: DistributionRecord, hosts: Iterable[SupervisorId]) -> list[Op]:
    """Adds the bundle of a distribution and its terms to the assignments of these hosts. Leaves out
    those whose assignments are full or damaged, so that they hold up no other."""
    ops, bundle, own = list[Op](), record.bundle, record.own_terms
    for host in hosts:
        terms = own.get(host, record.terms)
        entry = snapshot.assignments.get(host)
        old = AssignmentRecord() if entry is None else entry.record
        bundles = old.bundles if bundle in old.bundles else (*old.bundles, bundle)
        others = {id_: said for id_, said in old.terms.items() if id_ != bundle}
        said = others if terms == ANY_TERMS else {**others, bundle: terms}
        if (bundles, said) == (old.bundles, old.terms) or why_untold(snapshot, host):
            continue
        data = encode(msgspec.structs.replace(old, bundles=bundles, terms=said, generation=old.generation + 1))
        path = paths.assignment(host)
        ops.append(Create(path, data) if entry is None else Set(path, data, entry.version))
    return ops


def retell_ops(snapshot: ClusterSnapshot, record: DistributionRecord) -> list[Op]:
    """Gives the terms of a distribution to its hosts that were told others."""
    told = told_of(snapshot, record.bundle, record.hosts)
    return tell_ops(snapshot, record, sorted(told))


def untell_ops(snapshot: ClusterSnapshot, bundle: BundleId, hosts: Iterable[SupervisorId]) -> list[Op]:
    """Takes the bundle out of the assignments of these hosts. Their copies stay until room is
    needed."""
    ops: list[Op] = []
    for host in sorted(told_of(snapshot, bundle, hosts)):
        entry = snapshot.assignments[host]
        left = tuple(b for b in entry.record.bundles if b != bundle)
        terms = {id_: said for id_, said in entry.record.terms.items() if id_ != bundle}
        generation = entry.record.generation + 1
        record = msgspec.structs.replace(entry.record, bundles=left, terms=terms, generation=generation)
        ops.append(Set(paths.assignment(host), encode(record), entry.version))
    return ops


def end_ops(entry: DistributionEntry, state: DistributionState, reason: str = "") -> list[Op]:
    record = msgspec.structs.replace(entry.record, state=state, reason=reason)
    if record == entry.record:
        return []
    return [Set(paths.distribution(record.bundle), encode(record), entry.version)]


def cancel_ops(snapshot: ClusterSnapshot, bundle: BundleId, done: Collection[SupervisorId]) -> list[Op]:
    """Ends a distribution. The hosts that are not known to be done are told to give up; those of
    them that have the whole bundle keep it until room is needed."""
    entry = required(snapshot.distributions.get(bundle), "not_found", what=f"a distribution of bundle {bundle!r}")
    if entry.record.is_over and entry.record.state is not DistributionState.CANCELLED:
        raise TorrentdistError("distribution_over", id=bundle, state=entry.record.state)
    pending = [host for host in _reached(snapshot, entry.record) if host not in done]
    ended = end_ops(entry, DistributionState.CANCELLED, "it was cancelled")
    return [*ended, *untell_ops(snapshot, bundle, pending)]


def give_up_ops(snapshot: ClusterSnapshot, bundle: BundleId, fetching: Collection[SupervisorId]) -> list[Op]:
    """Tells the hosts of a cancelled distribution that still fetch to give up. Hosts of earlier
    orders go on."""
    reached = _reached(snapshot, snapshot.distributions[bundle].record)
    return untell_ops(snapshot, bundle, [host for host in reached if host in fetching])


def release_ops(snapshot: ClusterSnapshot, bundle: BundleId, kept: Sequence[HostsUntil] = ()) -> list[Op]:
    """Ends what hosts promised: they may drop the bundle for room, except those that are `kept`.
    The record goes last, so that a new leader goes on."""
    entry, path = snapshot.distributions[bundle], paths.distribution(bundle)
    record = entry.record
    staying = {host for group in kept for host in group.hosts}
    others = [host for group in record.other_ends for host in group.hosts]
    leaving = [host for host in (*_reached(snapshot, record), *others) if host not in staying]
    left = _only(record, kept)
    last: Op = Set(path, encode(left), entry.version) if left.other_ends else Delete(path, entry.version)
    return [*untell_ops(snapshot, bundle, leaving), last]


def _only(record: DistributionRecord, kept: Sequence[HostsUntil]) -> DistributionRecord:
    """Returns the record of a distribution that is over and that only these hosts keep."""
    return DistributionRecord(
        bundle=record.bundle,
        owner=record.owner,
        state=DistributionState.COMPLETE,
        begun_at=record.begun_at,
        other_ends=tuple(group for group in kept if group.ends_at is not None),
    )


def _release_some_ops(snapshot: ClusterSnapshot, bundle: BundleId, over: Sequence[HostsUntil]) -> list[Op]:
    """Ends what these hosts of earlier orders promised."""
    entry = snapshot.distributions[bundle]
    left = tuple(group for group in entry.record.other_ends if group not in over)
    record = msgspec.structs.replace(entry.record, other_ends=left)
    leaving = [host for group in over for host in group.hosts]
    return [
        *untell_ops(snapshot, bundle, leaving),
        Set(paths.distribution(bundle), encode(record), entry.version),
    ]


def closing_ops(snapshot: ClusterSnapshot, bundle: BundleId, now: float) -> list[Op]:
    """Drops the record of a distribution that nobody needs any more. Hosts that keep the bundle for
    good go on keeping it. Raises an error while the bundle's record cannot be read."""
    entry, of = snapshot.distributions[bundle], snapshot.bundles.get(bundle)
    record = entry.record
    if paths.bundle(bundle) in snapshot.damaged:
        raise TorrentdistError("invalid_request", detail=f"{paths.bundle(bundle)} is damaged")
    if of is None or of.record.state is BundleState.REMOVED:
        return release_ops(snapshot, bundle)
    over = [group for group in record.other_ends if _is_over(group.ends_at, entry, now)]
    if is_due(entry, now):
        return release_ops(snapshot, bundle, [group for group in record.other_ends if group not in over])
    if over:
        return _release_some_ops(snapshot, bundle, over)
    timed = [record.ends_at, *(group.ends_at for group in record.other_ends)]
    if record.is_over and timed.count(None) == len(timed) and now - entry.mtime > KEEP_SECS:
        return [Delete(paths.distribution(bundle), entry.version)]
    return []


def is_due(entry: DistributionEntry, now: float) -> bool:
    """Whether the time is over for which the hosts keep the bundle. A distribution that runs ends
    first, and clients see its end."""
    return _is_over(entry.record.ends_at, entry, now)


def _is_over(ends_at: float | None, entry: DistributionEntry, now: float) -> bool:
    if ends_at is None or entry.record.state is DistributionState.RUNNING:
        return False
    return now >= ends_at and now - entry.mtime >= SHOWN_SECS


def unless_changed(bundle: BundleId, begun: DistributionRecord, decide: Decide) -> Decide:
    """Returns the decision, without effect once somebody else has changed or ended the distribution
    that it was made for."""

    def still(snapshot: ClusterSnapshot) -> Sequence[Op]:
        entry = snapshot.distributions.get(bundle)
        return decide(snapshot) if entry is not None and entry.record == begun else []

    return still
