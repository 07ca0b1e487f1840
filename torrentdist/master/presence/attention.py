"""Says what needs an operator's attention, grouped by cause. The Overview, `cluster`, `top`,
`doctor` and the metrics all show what this one function finds.

Always: the worst comes first, things with one cause are one entry, and each entry names the page
that helps. What only the leader knows is found on the leader alone.
Pure: functions of views.
"""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from torrentdist.host.telemetry.metric_table import ATTENTION
from torrentdist.model.access.host_record import HostRecord
from torrentdist.model.records import FailoverRecord
from torrentdist.model.wire.cluster_messages import AttentionView, ClusterView, GoneView
from torrentdist.model.wording import counted

K = TypeVar("K")
MOST_NAMED = 5
"""Most things that one entry names."""
SILENT_SECS = 10.0
"""A heartbeat that is late by more is worth a look."""
PAGES = {
    "problem": "when-zookeeper-is-away-or-its-data-is-gone",
    "leader": "no-leader",
    "unheard": "when-a-master-or-a-disk-fails",
    "lost": "lost",
    "gone": "gone",
    "silent": "host-silent",
    "stopped": "distribution-stalled",
    "failing": "job-fails",
    "elections": "leader-changes",
    "restarting": "restarts",
    "full": "disk-nearly-full",
    "stuck": "distribution-stalled",
    "filling": "disk-nearly-full",
    "under-replicated": "under-replicated",
    "clock": "clock",
    "expiring": "certificate-expires",
}
"""The section of docs/operations.md about each kind."""
FILLS_SECS = 86_400.0
"""A disk that is full within this time is worth a look, as for TorrentdistDiskFillsSoon."""
_SEVERE = ATTENTION[:10]
LOOP_SECS = 900.0
LOOP_ELECTIONS = 4
"""As many elections within LOOP_SECS are too many."""
PLANNED = ("first leader", "stopped", "transferred")
"""The reasons of elections that do not count: an operator hands over, or restarts a master."""
_NUMBER = re.compile(r"\d[\d.,]*")


class Troubles(msgspec.Struct, frozen=True):
    """What may need attention, besides what the view of the cluster says."""

    lost: Iterable[str] = ()
    short: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Bundles with too few copies, and how many they have."""
    stopped: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Bundles whose distribution was stopped, and why."""
    stuck: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    """Bundles that do not arrive on some hosts, and why, by host."""
    expiring: Iterable[HostRecord] = ()
    """Hosts whose certificate ends soon."""
    jobs: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Jobs that failed or fail again and again, and why."""
    restarting: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    """Masters and supervisors that start again and again, by role, and how often."""
    elections: Sequence[FailoverRecord] = ()
    """The last ones, the newest first."""


def attention(cluster: ClusterView, troubles: Troubles, now: float) -> list[AttentionView]:
    """Returns what to look at, the worst first."""
    found = [*_of_cluster(cluster), *_of_room(cluster, troubles), *_of_records(troubles, now)]
    return sorted(found, key=lambda entry: ATTENTION.index(entry.what))


def unheard(leader: str, why: str) -> AttentionView:
    """Says that the leader does not answer, so that what only it knows is missing."""
    detail = f"it leads and does not answer ({why}), so nobody knows which hosts are silent and which jobs fail"
    return _entry("unheard", "masters", [leader], detail)


def _entry(what: str, kind: str, subjects: Sequence[str], detail: str) -> AttentionView:
    return AttentionView(
        what=what,
        severe=what in _SEVERE,
        kind=kind,
        subjects=sorted(subjects)[:MOST_NAMED],
        count=len(subjects),
        detail=detail,
        page=f"docs/operations.md#{PAGES[what]}",
    )


def _of_cluster(cluster: ClusterView) -> Iterator[AttentionView]:
    if cluster.problem:
        yield _entry("problem", "cluster", ["cluster"], cluster.problem)
    elif (cluster.stale_secs or 0.0) > SILENT_SECS:
        detail = f"ZooKeeper has been out of reach for {cluster.stale_secs:.0f} s, so nothing can be changed"
        yield _entry("problem", "cluster", ["ZooKeeper"], detail)
    if cluster.leader is None:
        yield _entry("leader", "cluster", ["leader"], "nobody leads")
    for role, kind in (("master", "masters"), ("supervisor", "hosts")):
        if gone := [view for view in cluster.gone if view.role == role]:
            yield _entry("gone", kind, [view.id for view in gone], gone_sentence(gone))
    late = {host.id: host.silent_secs for host in cluster.supervisors if (host.silent_secs or 0.0) > SILENT_SECS}
    if late:
        most = max(secs or 0.0 for secs in late.values())
        detail = f"{'its heartbeat is' if len(late) == 1 else 'heartbeats are up to'} {most:.0f} s late"
        yield _entry("silent", "hosts", [*late], detail)
    for kind, wrong in (
        ("masters", {str(master.id): master.clock for master in cluster.masters if master.clock}),
        ("hosts", {str(host.id): host.clock for host in cluster.supervisors if host.clock}),
    ):
        if wrong:
            most = max(wrong.values(), key=abs)
            way = "ahead of" if most > 0 else "behind"
            yield _entry("clock", kind, [*wrong], f"up to {abs(most):,.0f} s {way} ZooKeeper's clock")


def gone_sentence(gone: Sequence[GoneView]) -> str:
    """Says since when these daemons are gone, and what they should keep and run."""
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(min(view.since for view in gone)))
    bundles, jobs = sum(view.bundles for view in gone), sorted({job for view in gone for job in view.jobs})
    named = ", ".join(jobs[:MOST_NAMED]) + (f" and {len(jobs) - MOST_NAMED} more" if len(jobs) > MOST_NAMED else "")
    keeps = f"; should keep {counted(bundles, 'bundle')}" if bundles else ""
    return f"gone{'' if len(gone) == 1 else ', the first'} since {since}{keeps}{f'; ran {named}' if jobs else ''}"


def _of_room(cluster: ClusterView, troubles: Troubles) -> Iterator[AttentionView]:
    """Yields full disks with the bundles that wait for them, and the other hosts that bundles do
    not reach."""
    waits: dict[str, set[str]] = defaultdict(set)
    for bundle, hosts in troubles.stuck.items():
        for host in hosts:
            waits[host].add(bundle)
    full_hosts = {str(host.id): host.full for host in cluster.supervisors if host.full}
    for kind, full in (("masters", {str(m.id): m.full for m in cluster.masters if m.full}), ("hosts", full_hosts)):
        for detail, ids in _by_cause(full):
            bundles = {bundle for id_ in ids for bundle in waits.get(id_, ())} if kind == "hosts" else set()
            yield _entry("full", kind, ids, detail + _waiting(bundles, "for room"))
    for kind, soon in (("masters", cluster.masters), ("hosts", cluster.supervisors)):
        ends = {str(one.id): one.fills_in_secs for one in soon if one.fills_in_secs and not one.full}
        ends = {id_: secs for id_, secs in ends.items() if secs <= FILLS_SECS}
        if ends:
            hours = min(ends.values()) / 3600
            detail = f"{'its' if len(ends) == 1 else 'the first'} disk is full in {hours:.0f} h at the last week's pace"
            yield _entry("filling", kind, [*ends], detail)
    reasons = {(host, bundle): why for bundle, hosts in troubles.stuck.items() for host, why in hosts.items()}
    for detail, pairs in _by_cause({pair: why for pair, why in reasons.items() if pair[0] not in full_hosts}):
        bundles = {bundle for _, bundle in pairs}
        yield _entry("stuck", "hosts", sorted({host for host, _ in pairs}), detail + _waiting(bundles, "there"))


def _waiting(bundles: set[str], where: str) -> str:
    if not bundles:
        return ""
    named = f" ({', '.join(sorted(bundles))})" if len(bundles) <= 2 else ""
    return f"; {counted(len(bundles), 'bundle')}{named} {'waits' if len(bundles) == 1 else 'wait'} {where}"


def _of_records(troubles: Troubles, now: float) -> Iterator[AttentionView]:
    if lost := sorted(troubles.lost):
        yield _entry("lost", "bundles", lost, "no copy is known")
    for detail, bundles in _by_cause(troubles.stopped):
        yield _entry("stopped", "bundles", bundles, f"its distribution was stopped: {detail}")
    for detail, jobs in _by_cause(troubles.jobs):
        yield _entry("failing", "jobs", jobs, detail)
    unplanned = [record for record in troubles.elections if record.reason not in PLANNED]
    lately = [record for record in unplanned if now - record.at <= LOOP_SECS]
    if len(lately) >= LOOP_ELECTIONS:
        detail = f"the leader was lost {len(lately)} times within 15 min, the last time because: {lately[0].reason}"
        yield _entry("elections", "masters", [*{record.current: None for record in lately}], detail)
    for role, kind in (("master", "masters"), ("supervisor", "hosts")):
        for detail, ids in _by_cause(troubles.restarting.get(role, {})):
            yield _entry("restarting", kind, ids, detail)
    for detail, bundles in _by_cause(troubles.short):
        yield _entry("under-replicated", "bundles", bundles, detail)
    for kind in ("masters", "hosts"):
        ends = {r.id: r.expires_at for r in troubles.expiring if (r.role == "master") is (kind == "masters")}
        if ends:
            left = min(ends.values()) - now
            when = f"ends in {counted(round(left / 86400), 'day')}" if left > 0 else "has ended"
            yield _entry("expiring", kind, [*ends], f"{'its' if len(ends) == 1 else 'the first'} certificate {when}")


def _by_cause(reasons: Mapping[K, str]) -> list[tuple[str, list[K]]]:
    """Returns the things with each cause, the most frequent first, and the words of the first
    thing. Two causes that differ in numbers alone are one."""
    groups: dict[str, list[K]] = defaultdict(list)
    for thing in sorted(reasons, key=str):
        groups[_NUMBER.sub("#", reasons[thing])].append(thing)
    return [(reasons[things[0]], things) for things in sorted(groups.values(), key=lambda things: -len(things))]


def health(cluster: ClusterView, found: Sequence[AttentionView]) -> str:
    """Returns one sentence about the whole cluster."""
    if cluster.leader is None:
        return "Nobody leads, so nothing can be changed. What runs goes on."
    if cluster.stale_secs is not None:
        return "ZooKeeper is out of reach, so nothing can be changed. What runs goes on."
    if any(entry.what == "lost" for entry in found):
        return "Some bundles are lost: no copy of them is known."
    if found:
        return "It works, and something needs attention."
    if len(cluster.masters) == 1:
        return "All is well, but there is one master only: nobody can take over."
    return "All is well."
