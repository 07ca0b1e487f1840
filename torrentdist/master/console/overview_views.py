"""What the console's overview shows: the health of the cluster, what needs attention, and the
distributions that run.

Pure: functions of views and records.
Always: the worst comes first. A list is bounded, and says how long it would be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torrentdist.model.access.host_record import HostRecord
from torrentdist.model.ids import BundleId, MasterId
from torrentdist.model.wire.cluster_messages import BundleCounts, ClusterView
from torrentdist.model.wire.view import View
from torrentdist.model.wording import counted

MOST_LISTED = 20
"""Most entries of each list on the overview."""
SILENT_SECS = 10.0
"""A heartbeat that is late by more is worth a look."""


class AttentionView(View, frozen=True, kw_only=True):
    """Something that an operator should look at."""

    what: str
    """lost, silent, full, under-replicated, stopped, stuck, expiring, problem."""
    kind: str
    """The kind of page about the subject: bundles, hosts, masters."""
    subject: str
    detail: str


class DistributionLine(View, frozen=True, kw_only=True):
    """A bundle that hosts should get and that not all of them have."""

    bundle: BundleId
    size: int
    hosts: int
    """Hosts that were told to fetch it, and hosts whose wave has not begun."""
    done: int
    stuck: int = 0
    """Hosts that say why they do not get it."""
    reason: str = ""
    """The reason that one of these hosts gives."""


class OverviewView(View, frozen=True, kw_only=True):
    leader: MasterId | None
    epoch: int
    masters: int
    supervisors: int
    jobs: int
    bundles: BundleCounts
    health: str
    """The health of the cluster in words."""
    attention: list[AttentionView]
    attention_total: int
    distributions: list[DistributionLine]
    distributions_total: int
    stale_secs: float | None = None


@dataclass(frozen=True)
class Troubles:
    """What may need attention, besides the masters and the silent hosts."""

    lost: Iterable[str] = ()
    short: Mapping[str, str] = field(default_factory=dict)
    """Bundles with too few copies, and how many they have."""
    stopped: Mapping[str, str] = field(default_factory=dict)
    """Bundles whose distribution was stopped, and why."""
    running: list[DistributionLine] = field(default_factory=list)
    expiring: Iterable[HostRecord] = ()
    """Hosts whose certificate ends soon."""


def attention(cluster: ClusterView, troubles: Troubles, now: float) -> list[AttentionView]:
    """Returns what to look at, the worst first."""
    found = []
    if cluster.problem:
        found.append(AttentionView(what="problem", kind="masters", subject="cluster", detail=cluster.problem))
    if cluster.leader is None:
        found.append(AttentionView(what="problem", kind="masters", subject="leader", detail="nobody leads"))
    found += [
        AttentionView(what="lost", kind="bundles", subject=id_, detail="no copy is known") for id_ in troubles.lost
    ]
    for host in cluster.supervisors:
        if host.silent_secs is not None and host.silent_secs > SILENT_SECS:
            detail = f"its heartbeat is {host.silent_secs:.0f} s late"
            found.append(AttentionView(what="silent", kind="hosts", subject=host.id, detail=detail))
    found += [
        AttentionView(what="full", kind=kind, subject=host.id, detail=host.full)
        for kind, hosts in (("masters", cluster.masters), ("hosts", cluster.supervisors))
        for host in hosts
        if host.full
    ]
    found += [
        AttentionView(what="under-replicated", kind="bundles", subject=id_, detail=detail)
        for id_, detail in troubles.short.items()
    ]
    found += [
        AttentionView(what="stopped", kind="bundles", subject=id_, detail=detail)
        for id_, detail in troubles.stopped.items()
    ]
    for line in troubles.running:
        if line.stuck:
            detail = f"{counted(line.stuck, 'host')} cannot get it, such as {line.reason}"
            found.append(AttentionView(what="stuck", kind="bundles", subject=line.bundle, detail=detail))
    found += [_expiring(record, now) for record in troubles.expiring]
    return found


def _expiring(record: HostRecord, now: float) -> AttentionView:
    left = record.expires_at - now
    when = f"ends in {counted(round(left / 86400), 'day')}" if left > 0 else "has ended"
    kind = "masters" if record.role == "master" else "hosts"
    return AttentionView(what="expiring", kind=kind, subject=record.id, detail=f"its certificate {when}")


def overview_view(
    cluster: ClusterView, hosts: int, found: list[AttentionView], lines: list[DistributionLine]
) -> OverviewView:
    return OverviewView(
        leader=cluster.leader,
        epoch=cluster.epoch,
        masters=len(cluster.masters),
        supervisors=hosts,
        jobs=len(cluster.jobs),
        bundles=cluster.bundles,
        health=health(cluster, found),
        attention=found[:MOST_LISTED],
        attention_total=len(found),
        distributions=lines[:MOST_LISTED],
        distributions_total=len(lines),
        stale_secs=cluster.stale_secs,
    )


def health(cluster: ClusterView, found: list[AttentionView]) -> str:
    """Returns one sentence about the whole cluster."""
    if cluster.leader is None:
        return "Nobody leads, so nothing can be changed. What runs goes on."
    if cluster.stale_secs is not None:
        return "ZooKeeper is out of reach, so nothing can be changed. What runs goes on."
    kinds = Counter(item.what for item in found)
    if kinds["lost"]:
        return "Some bundles are lost: no copy of them is known."
    if found:
        return "It works, and something needs attention."
    if len(cluster.masters) == 1:
        return "All is well, but there is one master only: nobody can take over."
    return "All is well."
