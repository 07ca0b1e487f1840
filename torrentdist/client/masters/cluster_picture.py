"""What `torrentdist top` shows: the cluster, what needs attention, and how far distributions are.

Always: the number of requests is bounded, however many bundles and hosts there are. What no master
answers is left out, and said.
"""

import asyncio
import contextlib
import math

from torrentdist.client.masters import policy_client
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.policy_messages import DistributionStatusView
from torrentdist.model.wire.cluster_messages import ClusterFigures
from torrentdist.model.wire.fleet_messages import FleetView, HostProgress, HostState
from torrentdist.model.wire.view import View, view_of

MOST_FOLLOWED = 5
"""Most distributions whose hosts are asked for at a time."""
SLOWEST = 5
UNDER_WAY = frozenset({"running"})


class DistributionPicture(View, frozen=True, kw_only=True):
    """A distribution that is under way."""

    bundle: BundleId
    wave: int
    waves: int
    hosts: int
    done: int
    size: int
    arrived: int
    """The bytes that all its hosts have."""
    rate: float
    eta: float | None
    """Seconds until the last host has it, those of later waves included; null: nobody knows."""
    slowest: list[HostProgress]


class ClusterPicture(ClusterFigures, frozen=True, kw_only=True):
    """The answer of `top`."""

    gone: int
    """Masters and supervisors that left without a clean stop or a drain, and are not back."""
    distributions: list[DistributionPicture]
    """The oldest of those that are under way."""
    standing: int
    """Standing orders."""


async def cluster_picture(client: MasterClient) -> ClusterPicture:
    """Asks the masters for the cluster, its distributions, and the hosts of the oldest of these."""
    cluster, known = await asyncio.gather(client.cluster(), _distributions(client))
    running = sorted((one for one in known if one.state in UNDER_WAY), key=lambda one: one.begun_at)
    fleets = await asyncio.gather(*(_hosts(client, one.bundle) for one in running[:MOST_FOLLOWED]))
    pictures = [distribution_picture(one, fleet) for one, fleet in zip(running, fleets, strict=False) if fleet]
    return view_of(
        ClusterPicture,
        cluster,
        masters=len(cluster.masters),
        supervisors=len(cluster.supervisors),
        jobs=len(cluster.jobs),
        gone=len(cluster.gone),
        distributions=pictures,
        distributions_total=len(running),
        standing=sum(one.state == "standing" for one in known),
    )


async def _distributions(client: MasterClient) -> list[DistributionStatusView]:
    """Returns the distributions; none if the masters' release does not report them."""
    try:
        return await policy_client.distributions(client)
    except TorrentdistError as error:
        if error.code != "not_found":
            raise
        return []


async def _hosts(client: MasterClient, bundle: BundleId) -> FleetView | None:
    with contextlib.suppress(TorrentdistError):
        return await client.hosts(bundle)
    return None


def distribution_picture(one: DistributionStatusView, fleet: FleetView) -> DistributionPicture:
    fetching = [host for host in fleet.hosts if host.state is HostState.FETCHING]
    behind = [host for host in fleet.hosts if host.state is not HostState.DONE and not host.is_later]
    return view_of(
        DistributionPicture,
        one,
        done=sum(host.state is HostState.DONE for host in fleet.hosts),
        size=fleet.size,
        arrived=sum(host.done for host in fleet.hosts),
        rate=sum(host.rate for host in fetching),
        eta=fleet.time_left,
        slowest=sorted(behind, key=_lateness)[:SLOWEST],
    )


def _lateness(host: HostProgress) -> tuple[bool, float, str]:
    """Orders hosts: in trouble first, then those that have the longest way to go."""
    broken = host.state in (HostState.STUCK, HostState.GONE, HostState.FAILED)
    left = (host.size - host.done) / host.rate if host.rate > 0 else math.inf
    return (not broken, -left, host.supervisor)
