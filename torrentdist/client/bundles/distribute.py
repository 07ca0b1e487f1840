"""`bundle distribute`: assigns a bundle to hosts, and reports their progress until enough hosts
hold it.

Always: the report covers the hosts that this call named. Each of them is done, or failed with a
reason. A cluster that is temporarily unreachable does not end the wait before its deadline.
Never: judge a host by anything except the masters' reports.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.wire.fleet_messages import DistributeView, FailedHost, FleetView, HostProgress, HostState
from torrentdist.model.wire.transfer_messages import Sources

POLL_SECS = 0.5
LONGEST_POLL_SECS = 5.0
HOSTS_PER_POLL = 200
"""Up to this many hosts, the interval between polls is the shortest. Such an answer has about 50
KB."""
POLLED_SHARE = 0.1
"""The interval between polls, as a share of the time waited. It grows so that watching does not
slow down the transfer, and becomes short again near the end."""

_BROKEN = frozenset({HostState.FAILED, HostState.GONE, HostState.STUCK})


def hosts_needed(share: float, hosts: int) -> int:
    """Returns how many of `hosts` make up `share` (0 to 1)."""
    return min(hosts, math.ceil(share * hosts - 1e-9))


def poll_secs(hosts: int, waited: float = 0.0, done: float = 0.0) -> float:
    """Returns the seconds until the next poll. `done` is the share of bytes that has arrived after
    `waited` seconds."""
    left = waited * (1 - done) / done if done else math.inf
    period = max(POLL_SECS, min(waited * POLLED_SHARE, left / 2))
    return min(LONGEST_POLL_SECS, period * max(1.0, hosts / HOSTS_PER_POLL))


async def distribute(
    client: MasterClient,
    bundle_id: BundleId,
    *,
    supervisors: Collection[SupervisorId] = (),
    labels: Mapping[str, str] | None = None,
    wait_share: float = 0.0,
    timeout: float = math.inf,
    progress: Callable[[FleetView], None] = lambda fleet: None,
) -> DistributeView:
    """Assigns the bundle, then waits until `wait_share` of the hosts hold it, or for `timeout`
    seconds.

    Too few hosts are no error here: `done` counts the hosts that hold it, and `failed` lists the
    others with their reasons.
    """
    clock = asyncio.get_running_loop().time
    began = clock()
    fleet = await client.distribute(bundle_id, supervisors=supervisors, labels=labels)
    ours = frozenset(supervisors) or frozenset(host.supervisor for host in fleet.hosts)
    if not ours:
        wanted = ", ".join(f"{name}={value}" for name, value in sorted((labels or {}).items()))
        raise TorrentdistError("no_supervisor_matches", what=f"has the label {wanted}" if wanted else "is up")
    fleet = _only(fleet, ours)
    held = frozenset(host.supervisor for host in fleet.hosts if host.state is HostState.DONE)
    progress(fleet)
    needed = hosts_needed(wait_share, len(ours))
    while _done(fleet) < needed and clock() - began < timeout:
        waited = clock() - began
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
        seconds=clock() - began,
        sources=_sources(fleet, held),
    )


def _only(fleet: FleetView, ours: frozenset[SupervisorId]) -> FleetView:
    hosts = [host for host in fleet.hosts if host.supervisor in ours]
    return FleetView(id=fleet.id, digest=fleet.digest, size=fleet.size, hosts=hosts)


def _sources(fleet: FleetView, held: frozenset[SupervisorId]) -> Sources:
    """Returns where the bytes came from, excluding hosts that held the bundle before."""
    fetching = [host for host in fleet.hosts if host.supervisor not in held]
    masters = sum(host.from_masters for host in fetching)
    peers = sum(host.from_peers for host in fetching)
    plugin = sum(host.from_plugin for host in fetching)
    everything = sum(host.done for host in fleet.hosts)
    return Sources(masters=masters, peers=peers, plugin=plugin, local=max(0, everything - masters - peers - plugin))


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
