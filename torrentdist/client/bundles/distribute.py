"""`bundle distribute` and `bundle wait`: tells hosts to keep a bundle, and reports their progress
until enough of them hold it.

Always: the report covers the hosts that this call named. Each of them is done, or failed with a
reason. A cluster that is temporarily unreachable does not end the wait before its deadline.
Never: judge a host by anything except the masters' reports.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping

import msgspec

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.wire.fleet_messages import (
    DistributeBody,
    DistributeView,
    FailedHost,
    FleetView,
    HostProgress,
    HostState,
)
from torrentdist.model.wire.transfer_messages import Sources

FIRST_POLL_SECS = 0.05
"""A small bundle is at all hosts after less than POLL_SECS."""
POLL_SECS = 0.5
LONGEST_POLL_SECS = 5.0
HOSTS_PER_POLL = 200
"""Up to this many hosts, the interval between polls is the shortest. Such an answer has about 50
KB."""
POLLED_SHARE = 0.1
"""The interval between polls, as a share of the time waited. It grows so that watching does not
slow down the transfer, and becomes short again near the end."""

AT_ONCE = DistributeBody()
_BROKEN = frozenset({HostState.FAILED, HostState.GONE, HostState.STUCK})


def hosts_needed(share: float, hosts: int) -> int:
    """Returns how many of `hosts` make up `share` (0 to 1)."""
    return min(hosts, math.ceil(share * hosts - 1e-9))


def poll_secs(hosts: int, waited: float = 0.0, done: float = 0.0) -> float:
    """Returns the seconds until the next poll. `done` is the share of bytes that has arrived after
    `waited` seconds."""
    left = waited * (1 - done) / done if done else math.inf
    shortest = min(POLL_SECS, max(FIRST_POLL_SECS, waited / 2))
    period = max(shortest, min(waited * POLLED_SHARE, left / 2))
    return min(LONGEST_POLL_SECS, period * max(1.0, hosts / HOSTS_PER_POLL))


async def distribute(
    client: MasterClient,
    bundle_id: BundleId,
    *,
    supervisors: Collection[SupervisorId] = (),
    labels: Mapping[str, str] | None = None,
    how: DistributeBody = AT_ONCE,
    wait_share: float = 0.0,
    timeout: float = math.inf,
    progress: Callable[[FleetView], None] = lambda fleet: None,
) -> DistributeView:
    """Tells the hosts, then waits until `wait_share` of them hold the bundle, or for `timeout`
    seconds. `how`: in which waves, with which limits.

    Too few hosts are no error here: `done` counts the hosts that hold it, and `failed` lists the
    others with their reasons. A distribution that is stopped raises `distribution_stopped`.
    """
    began = asyncio.get_running_loop().time()
    chosen = list(supervisors) or None
    body = msgspec.structs.replace(how, supervisors=chosen, labels=dict(labels or {}))
    fleet = await client.distribute(bundle_id, body)
    told = frozenset(host.supervisor for host in fleet.hosts)
    ours = (frozenset(supervisors) or told) if how.share == 1.0 else told
    if not ours and not how.everywhere:
        wanted = ", ".join(f"{name}={value}" for name, value in sorted((labels or {}).items()))
        raise TorrentdistError("no_supervisor_matches", what=f"has the label {wanted}" if wanted else "is up")
    return await _followed(client, _only(fleet, ours), ours, wait_share, timeout - (_now() - began), progress)


async def wait_for_hosts(
    client: MasterClient,
    bundle_id: BundleId,
    *,
    share: float,
    timeout: float = math.inf,
    progress: Callable[[FleetView], None] = lambda fleet: None,
) -> DistributeView:
    """Waits until `share` of the hosts that were told to keep a bundle hold it, as distribute()
    does."""
    fleet = await client.hosts(bundle_id)
    if fleet.stopped:
        raise TorrentdistError("distribution_stopped", id=bundle_id, detail=fleet.stopped)
    if not fleet.hosts:
        raise TorrentdistError("not_found", what=f"a host that was told to keep bundle {bundle_id!r}")
    ours = frozenset(host.supervisor for host in fleet.hosts)
    return await _followed(client, fleet, ours, share, timeout, progress)


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _followed(
    client: MasterClient,
    fleet: FleetView,
    ours: frozenset[SupervisorId],
    wait_share: float,
    timeout: float,
    progress: Callable[[FleetView], None],
) -> DistributeView:
    began, bundle_id = _now(), fleet.id
    held = frozenset(host.supervisor for host in fleet.hosts if host.state is HostState.DONE)
    progress(fleet)
    needed = hosts_needed(wait_share, len(ours))
    while _done(fleet) < needed and _now() - began < timeout:
        if fleet.stopped:
            raise TorrentdistError("distribution_stopped", id=bundle_id, detail=fleet.stopped)
        waited = _now() - began
        await asyncio.sleep(max(0.0, min(poll_secs(len(ours), waited, _arrived(fleet)), timeout - waited)))
        try:
            fleet = _only(await client.hosts(bundle_id), ours)
        except TorrentdistError as error:
            # The hosts continue without masters, so keep waiting for them.
            if error.exit_code != EXIT_UNAVAILABLE:
                raise
        progress(fleet)
    return DistributeView(
        id=bundle_id,
        digest=fleet.digest,
        hosts=len(ours),
        done=_done(fleet),
        failed=_failed(fleet, ours, late=_done(fleet) < needed),
        seconds=_now() - began,
        sources=_sources(fleet, held),
        zones=fleet.zones,
    )


def _only(fleet: FleetView, ours: frozenset[SupervisorId]) -> FleetView:
    return msgspec.structs.replace(fleet, hosts=[host for host in fleet.hosts if host.supervisor in ours])


def _sources(fleet: FleetView, held: frozenset[SupervisorId]) -> Sources:
    """Returns where the bytes came from, excluding hosts that held the bundle before."""
    fetching = [host for host in fleet.hosts if host.supervisor not in held]
    masters = sum(host.from_masters for host in fetching)
    peers = sum(host.from_peers for host in fetching)
    plugin = sum(host.from_plugin for host in fetching)
    local = max(0, sum(host.done for host in fleet.hosts) - masters - peers - plugin)
    outside = sum(host.outside for host in fetching)
    return Sources(masters=masters, peers=peers, plugin=plugin, local=local, outside=outside)


def _arrived(fleet: FleetView) -> float:
    """Returns the share of all bytes that has arrived."""
    return sum(host.done for host in fleet.hosts) / (fleet.size * len(fleet.hosts) or 1)


def _done(fleet: FleetView) -> int:
    return sum(host.state is HostState.DONE for host in fleet.hosts)


def _failed(fleet: FleetView, ours: frozenset[SupervisorId], *, late: bool) -> list[FailedHost]:
    """Returns the hosts that failed. If the wait ended too early (`late`), every host that is not
    done counts."""
    states = {host.supervisor: host for host in fleet.hosts}
    failed = []
    for supervisor in sorted(ours):
        host = states.get(supervisor)
        if host is None:
            failed.append(FailedHost(supervisor=supervisor, reason="no master knows of it"))
        elif host.state in _BROKEN or (late and host.state is not HostState.DONE):
            failed.append(FailedHost(supervisor=supervisor, reason=_reason(host)))
    return failed


def _reason(host: HostProgress) -> str:
    if host.state in (HostState.FETCHING, HostState.STUCK) and host.size:
        return f"{host.state} at {100 * host.done // host.size} %" + (f": {host.reason}" if host.reason else "")
    return f"{host.state}: {host.reason}" if host.reason else str(host.state)
