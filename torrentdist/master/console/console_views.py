"""The values that the console's pages show, and that their JSON twins are.

Pure: functions of views.
Always: a list is bounded, and says how long it would be. What is not known is null, never zero.
"""

import math
from collections import Counter
from collections.abc import Iterable
from heapq import nsmallest

from torrentdist.charts.quantities import size
from torrentdist.master.reads.time_left import eta_of
from torrentdist.model.ids import BundleId, Digest, JobId, SupervisorId
from torrentdist.model.wire.cluster_messages import (
    ClusterFigures,
    GoneView,
    HostStateView,
    SupervisorView,
)
from torrentdist.model.wire.fleet_messages import DistributionLine, FleetView, HostProgress, HostState
from torrentdist.model.wire.ha_views import FailoverView, RoleView
from torrentdist.model.wire.job_messages import WorkerReport
from torrentdist.model.wire.transfer_messages import Sources
from torrentdist.model.wire.view import View, view_of

MOST_LISTED = 20
"""Most entries of each list on the overview."""
SLOWEST = 5


class OverviewView(ClusterFigures, frozen=True, kw_only=True):
    gone_masters: int
    """Masters that left without a clean stop, and are not back."""
    gone_supervisors: int
    health: str
    """The health of the cluster in words."""
    attention_total: int
    distributions: list[DistributionLine]


class SlowHost(View, frozen=True, kw_only=True):
    supervisor: SupervisorId
    state: HostState
    eta: float | None
    """Seconds until it has the bundle, at its present rate. Null: nobody knows."""
    reason: str


class DistributionView(View, frozen=True, kw_only=True):
    """How far a bundle is on the hosts that are told to keep it."""

    id: BundleId
    digest: Digest
    size: int
    told: int
    """The number of hosts that are told to keep it."""
    states: dict[str, int]
    arrived: int
    """The bytes that all these hosts have."""
    rate: float
    eta: float | None
    """Seconds until the last host has it, those of later waves included. Null: nobody knows."""
    wave: int = 0
    waves: int = 0
    cells: str = ""
    """A letter for each host, in their order: `d` done, `s` stuck, `g` gone, `x` failed, `w`
    waiting, or a digit for the tenths that a fetching host has."""
    sources: Sources
    copies_from_masters: float
    """How often the holders have sent the whole bundle."""
    slowest: list[SlowHost]
    hosts: list[HostProgress]
    """The hosts of this page of the list."""
    state: str = ""
    """The state of the distribution, if there is one."""
    stopped: str = ""
    """Why it was stopped or cancelled; empty: it was not."""


class GrowthView(View, frozen=True, kw_only=True):
    """When the store of a host or a master is full."""

    free_bytes: int | None
    """Bytes of bundles for which it has room. Null: it has not told this master yet."""
    fills_in_secs: float | None
    """Seconds until that is used up at the pace of the last week. Null: it does not get less, or
    nobody can tell yet."""
    freed_bytes: int
    """The bytes of its bundles that retention rules remove next."""


class HostPageView(View, frozen=True, kw_only=True):
    host: SupervisorView | None
    """Null: it is gone."""
    gone: GoneView | None
    """Null: it is registered."""
    bundles: list[BundleId]
    """The bundles that it is told to keep."""
    workers: list[WorkerReport] | None
    """Its last reports about its workers. Null: this master is not the leader, so it gets none."""
    state: HostStateView | None
    """The room of its store, its rates and errors. Null: it does not answer."""
    growth: GrowthView | None
    """Null: ZooKeeper's clock is not known, or the sender may not read every bundle."""
    certificate_serial: str
    certificate_expires_at: float | None
    """Null: the cluster has issued it none."""
    revoked: bool


class MastersPageView(View, frozen=True, kw_only=True):
    masters: list[RoleView]
    gone: list[GoneView]
    failovers: list[FailoverView] | None
    """Null: ZooKeeper does not answer."""


class OutputLine(View, frozen=True, kw_only=True):
    """One stream of a worker on a host, with the bytes that the host keeps."""

    supervisor: SupervisorId
    worker: int
    stream: str
    size: int = 0
    at: float = 0.0
    """When it was written to last."""


class JobOutputView(View, frozen=True, kw_only=True):
    job: JobId
    lines: list[OutputLine]
    shown: OutputLine | None
    """Null: there is no output."""
    text: str
    """The end of the output that is shown."""
    silent: list[SupervisorId]
    """The hosts that did not answer."""


def distribution_view(fleet: FleetView, shown: Iterable[HostProgress]) -> DistributionView:
    """Returns the figures of a fleet. `shown`: the hosts that the page lists."""
    hosts, size = fleet.hosts, fleet.size
    from_masters = sum(host.from_masters for host in hosts)
    return view_of(
        DistributionView,
        fleet,
        told=len(hosts),
        states=dict(sorted(Counter(host.state.value for host in hosts).items())),
        arrived=sum(size if host.state is HostState.DONE else host.done for host in hosts),
        rate=sum(host.rate for host in hosts if host.state is HostState.FETCHING),
        eta=fleet.time_left,
        cells="".join(map(_cell, hosts)),
        sources=Sources(
            masters=from_masters,
            peers=sum(host.from_peers for host in hosts),
            local=sum(host.local for host in hosts),
            plugin=sum(host.from_plugin for host in hosts),
        ),
        copies_from_masters=round(from_masters / size, 2) if size else 0.0,
        slowest=slowest(hosts),
        hosts=list(shown),
        state=fleet.distribution,
    )


def _cell(host: HostProgress) -> str:
    if host.state is HostState.FETCHING:
        return str(min(9, 10 * host.done // host.size if host.size else 0))
    return {HostState.FAILED: "x"}.get(host.state, host.state.value[0])


def slowest(hosts: Iterable[HostProgress]) -> list[SlowHost]:
    """Returns the hosts that will have the bundle last: first those that a problem keeps from it,
    then those without an estimate, then those with the longest time left."""

    def order(host: HostProgress) -> tuple[bool, float, int, str]:
        eta = eta_of(host)
        kept = host.state in (HostState.FAILED, HostState.STUCK, HostState.GONE)
        return (not kept, -math.inf if eta is None else -eta, host.done, host.supervisor)

    late = nsmallest(
        SLOWEST, (host for host in hosts if host.state is not HostState.DONE and not host.is_later), key=order
    )
    return [SlowHost(supervisor=h.supervisor, state=h.state, eta=eta_of(h), reason=_reason(h)) for h in late]


def _reason(host: HostProgress) -> str:
    if host.reason:
        return host.reason
    if host.state is HostState.WAITING:
        return "it has not begun"
    if host.state is HostState.FETCHING:
        return f"it gets {size(host.rate)}/s" if host.rate > 0 else "nothing arrives just now"
    return ""
