"""What the API shows of bundles, masters and supervisors. Pure: functions of a snapshot.

Always: `said` is what peers told the directory of swarms, by peer.
Longer than most files: every view is one small function.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot
from torrentdist.master.changes.assignment_room import why_untold
from torrentdist.master.policies.distribution_changes import hosts_of
from torrentdist.master.reads.paging import WHOLE, Page
from torrentdist.model.access.host_record import HostRecord
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, MasterId, PeerId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState
from torrentdist.model.records import BundleRecord, BundleState, FailoverRecord
from torrentdist.model.removals import REMOVED_KEEPS_ID
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.cluster_messages import BundleCounts, ClusterView, MasterView, SupervisorView
from torrentdist.model.wire.fleet_messages import LATER_WAVE, FleetView, HostProgress, HostState, ZoneView
from torrentdist.model.wire.ha_views import FailoverView
from torrentdist.model.wire.swarm_messages import SwarmEntry
from torrentdist.model.wire.view import view_of
from torrentdist.swarm.directory.directory_values import HeldBundles, HostConditions

NOTHING_SAID = HostConditions()
NOT_RUNNING = "its supervisor is not running"
EXPIRING_SECS = 7 * 86400.0
ENDED_SECS = 7 * 86400.0
"""How long the certificate of a host that is not registered is told of after its end."""
ALIVE = (BundleState.UPLOADING, BundleState.AVAILABLE, BundleState.LOST)
"""States of a bundle that is not removed."""
LISTED = (BundleState.AVAILABLE, BundleState.LOST)
"""States of a bundle whose upload is complete and that is not removed."""


def entry_of(snapshot: ClusterSnapshot, bundle: BundleId, *states: BundleState) -> BundleEntry:
    """Returns the bundle's entry, or raises `bundle_not_found` if it is in none of these states."""
    entry = snapshot.bundles.get(bundle)
    if entry is None or entry.record.state not in states:
        raise not_found(bundle, entry)
    return entry


def not_found(bundle: BundleId, entry: BundleEntry | None) -> TorrentdistError:
    """Makes a `bundle_not_found` that says why: removed, or not complete."""
    state = None if entry is None else entry.record.state
    notes = {BundleState.REMOVED: "it was removed", BundleState.UPLOADING: "its upload is not complete"}
    return TorrentdistError("bundle_not_found", id=bundle, note=notes.get(state, "") if state else "")


def other_content(record: BundleRecord) -> TorrentdistError:
    """Makes a `conflict`: an id belongs to its first content for good, even after a removal."""
    note = REMOVED_KEEPS_ID if record.state is BundleState.REMOVED else ""
    return TorrentdistError("conflict", id=record.id, existing=record.digest, note=note)


def with_stuck(snapshot: ClusterSnapshot, view: BundleView, said: Mapping[PeerId, SwarmEntry]) -> BundleView:
    """Adds the peers that make no progress, the hosts that should keep the bundle and are not
    running, each with its reason, and who has it mounted."""
    stuck = {str(peer): entry.problem for peer, entry in said.items() if entry.problem}
    told = (id_ for id_, entry in snapshot.assignments.items() if view.id in entry.record.bundles)
    stuck |= {str(id_): NOT_RUNNING for id_ in told if id_ not in snapshot.supervisors}
    used_by = {str(peer): entry.used_by for peer, entry in sorted(said.items()) if entry.used_by}
    return msgspec.structs.replace(view, stuck=dict(sorted(stuck.items())), used_by=used_by)


def bundle_view(snapshot: ClusterSnapshot, bundle: BundleId, now: float | None = None) -> BundleView:
    """Returns the view of one bundle.

    `now`: the time by ZooKeeper's clock; None leaves the age out.
    """
    record = snapshot.bundles[bundle].record
    holders = sorted(snapshot.holders(bundle))
    return view_of(
        BundleView,
        record,
        replicas=len(holders),
        holders=holders,
        age_secs=None if now is None else max(0.0, now - record.created_at),
        signers=list(dict.fromkeys(key for envelope in record.signatures for key in envelope.key_ids)),
        signatures=list(record.signatures),
    )


def with_lacking(snapshot: ClusterSnapshot, view: BundleView, said: Mapping[PeerId, SwarmEntry]) -> BundleView:
    """Adds what each live master without the bundle waits for, and how much has arrived."""
    lacking = [id_ for id_ in sorted(snapshot.masters) if id_ not in snapshot.holders(view.id)]
    entries = {id_: said.get(PeerId(id_)) for id_ in lacking}
    return msgspec.structs.replace(
        view,
        lacking={id_: _lack(entry, view.size) for id_, entry in entries.items()},
        arrived=max((entry.done for entry in entries.values() if entry is not None), default=0),
    )


def _lack(entry: SwarmEntry | None, size: int) -> str:
    if entry is None:
        return "has not begun"
    if entry.problem or entry.complete:
        return entry.problem or "records its copy"
    return "writes it to disk" if entry.done >= size else f"has {100 * entry.done // size} %"


def replicated(snapshot: ClusterSnapshot, bundle: BundleId, replicas: int) -> bool:
    """Whether a wait for that many holders is over.

    It is over when they exist and the bundle is available, or when the bundle is gone. Holders
    alone are not enough: if the leader died before it wrote `available`, nobody would find an
    upload that was acknowledged.
    """
    entry = snapshot.bundles.get(bundle)
    if entry is None or entry.record.state is BundleState.REMOVED or replicas == 0:
        return True
    return entry.record.state is not BundleState.UPLOADING and len(snapshot.holders(bundle)) >= replicas


def bundle_list(
    snapshot: ClusterSnapshot,
    now: float | None = None,
    page: Page = WHOLE,
    own_bytes: Callable[[Digest], int | None] = lambda digest: None,
) -> list[BundleView]:
    """`own_bytes` returns what a bundle takes on this master's disk."""
    listed = page.of(snapshot.bundles, lambda id_: snapshot.bundles[id_].record.state in LISTED)
    views = (bundle_view(snapshot, id_, now) for id_ in listed)
    return [msgspec.structs.replace(view, signatures=[], own_bytes=own_bytes(view.digest)) for view in views]


def bundle_counts(snapshot: ClusterSnapshot) -> BundleCounts:
    states = [e.record.state for e in snapshot.bundles.values()]
    available = [id_ for id_, e in snapshot.bundles.items() if e.record.state is BundleState.AVAILABLE]
    return BundleCounts(
        total=sum(state in LISTED for state in states),
        available=len(available),
        uploading=states.count(BundleState.UPLOADING),
        lost=states.count(BundleState.LOST),
        under_replicated=sum(
            len(snapshot.holders(id_)) < snapshot.bundles[id_].record.min_replicas for id_ in available
        ),
    )


def cluster_view(
    snapshot: ClusterSnapshot,
    leader: MasterId | None,
    now: float,
    silent_secs: Mapping[SupervisorId, float] | None = None,
    held: Callable[[PeerId], HeldBundles | None] = lambda peer: None,
    said: HostConditions = NOTHING_SAID,
    counts: BundleCounts | None = None,
) -> ClusterView:
    """Returns the view of the whole cluster.

    `held` returns the bundles that a peer has announced. `counts`: None: count them.
    """
    masters = [
        view_of(
            MasterView,
            m,
            uptime_secs=round(max(0.0, now - m.started_at), 1),
            is_leader=m.id == leader,
            **_condition(said, PeerId(m.id)),
        )
        for _, m in sorted(snapshot.masters.items())
    ]
    return ClusterView(
        leader=leader,
        epoch=snapshot.epoch,
        masters=masters,
        supervisors=supervisor_list(snapshot, now, silent_secs, held, said),
        jobs=sorted(snapshot.jobs),
        bundles=counts or bundle_counts(snapshot),
        expiring={record.id: round(record.expires_at - now, 1) for record in expiring_hosts(snapshot, now)},
    )


def expiring_hosts(snapshot: ClusterSnapshot, now: float) -> list[HostRecord]:
    """Returns the hosts and masters whose certificate has few days left. One that ended long ago
    counts only if its host is registered: the others are gone for good."""
    here = {*map(str, snapshot.masters), *map(str, snapshot.supervisors)}
    records = (entry.record for _, entry in sorted(snapshot.hosts.items()))
    return [record for record in records if not record.is_revoked and _is_expiring(record, record.id in here, now)]


def _is_expiring(record: HostRecord, is_here: bool, now: float) -> bool:
    ends_at = record.expires_at
    return 0 < ends_at < now + EXPIRING_SECS and (is_here or ends_at >= now - ENDED_SECS)


def supervisor_list(
    snapshot: ClusterSnapshot,
    now: float,
    silent_secs: Mapping[SupervisorId, float] | None,
    held: Callable[[PeerId], HeldBundles | None],
    said: HostConditions,
    among: Iterable[SupervisorId] | None = None,
) -> list[SupervisorView]:
    """Returns the views of supervisors: of all, or of those `among` that are registered."""
    views = []
    for id_ in sorted(snapshot.supervisors if among is None else among):
        s = snapshot.supervisors.get(id_)
        if s is None:
            continue
        assignment = snapshot.assignments.get(id_)
        told = held(PeerId(id_))
        views.append(
            view_of(
                SupervisorView,
                s,
                slots_used=len(assignment.record.workers) if assignment else 0,
                bundles=None if told is None else told.number,
                bytes=None if told is None else told.size,
                own_bytes=None if told is None else told.own,
                rate=None if told is None else told.rate,
                draining=assignment is not None and assignment.record.draining,
                uptime_secs=round(max(0.0, now - s.started_at), 1),
                silent_secs=None if silent_secs is None else silent_secs.get(id_, 0.0),
                **_condition(said, PeerId(id_)),
            )
        )
    return views


def _condition(said: HostConditions, peer: PeerId) -> dict[str, object]:
    return {
        "full": said.full.get(peer, ""),
        "free_bytes": said.free.get(peer),
        "fills_in_secs": said.fills_in.get(peer),
        "clock": said.clocks.get(peer, 0.0),
    }


def failover_view(record: FailoverRecord) -> FailoverView:
    return view_of(FailoverView, record)


def fleet_view(snapshot: ClusterSnapshot, bundle: BundleId, said: Mapping[PeerId, SwarmEntry]) -> FleetView:
    """Returns the progress of each host whose assignment names the bundle, or whose wave has not
    begun."""
    size = snapshot.bundles[bundle].record.size
    told = [
        host_progress(snapshot, id_, said.get(PeerId(id_)), size)
        for id_, assignment in sorted(snapshot.assignments.items())
        if bundle in assignment.record.bundles
    ]
    return with_later_waves(snapshot, bundle, told)


def zones_of(fleet: FleetView, zone_of: Callable[[PeerId], str]) -> list[ZoneView]:
    """Returns what came into each zone of these hosts; nothing if they are all in one."""
    by_zone: dict[str, list[HostProgress]] = {}
    for host in fleet.hosts:
        if zone := zone_of(PeerId(host.supervisor)):
            by_zone.setdefault(zone, []).append(host)
    if len(by_zone) < 2 or not fleet.size:
        return []
    return [
        ZoneView(zone=zone, hosts=len(hosts), copies=round(sum(host.outside for host in hosts) / fleet.size, 2))
        for zone, hosts in sorted(by_zone.items())
    ]


def with_later_waves(snapshot: ClusterSnapshot, bundle: BundleId, hosts: list[HostProgress]) -> FleetView:
    """Adds the hosts whose wave has not begun to those that were told, and those that cannot be
    told because their assignments are full or damaged."""
    record = snapshot.bundles[bundle].record
    order = snapshot.distributions.get(bundle)
    if order is None:
        return FleetView(id=bundle, digest=record.digest, size=record.size, hosts=hosts)
    hosts = sorted([*hosts, *_untold(snapshot, order.record, record.size, hosts)], key=lambda host: host.supervisor)
    failed = order.record.state in (DistributionState.STOPPED, DistributionState.CANCELLED)
    return FleetView(
        id=bundle,
        digest=record.digest,
        size=record.size,
        hosts=hosts,
        distribution=order.record.state.value,
        stopped=order.record.reason if failed else "",
    )


def _untold(
    snapshot: ClusterSnapshot, order: DistributionRecord, size: int, told: list[HostProgress]
) -> Iterable[HostProgress]:
    if order.state is DistributionState.CANCELLED:
        return
    known, ordered = {host.supervisor for host in told}, frozenset(order.hosts)
    for id_ in hosts_of(snapshot, order):
        if id_ in known:
            continue
        if why := why_untold(snapshot, id_):
            yield HostProgress(supervisor=id_, state=HostState.STUCK, size=size, reason=why)
        elif id_ in ordered and not order.is_over:
            yield HostProgress(supervisor=id_, state=HostState.WAITING, size=size, reason=LATER_WAVE)


def host_progress(snapshot: ClusterSnapshot, id_: SupervisorId, said: SwarmEntry | None, size: int) -> HostProgress:
    if id_ not in snapshot.supervisors:
        return HostProgress(supervisor=id_, state=HostState.GONE, size=size, reason=NOT_RUNNING)
    if said is None:
        return HostProgress(supervisor=id_, state=HostState.WAITING, size=size)
    if said.complete:
        state = HostState.DONE
    elif said.problem:
        state = HostState.STUCK
    else:
        state = HostState.FETCHING
    return HostProgress(  # not by view_of: a page of a large fleet makes very many
        supervisor=id_,
        state=state,
        done=said.done,
        size=size,
        rate=said.rate,
        from_peers=said.from_peers,
        from_masters=said.from_masters,
        from_plugin=said.from_plugin,
        local=said.local,
        outside=said.outside,
        reason=said.problem,
    )
