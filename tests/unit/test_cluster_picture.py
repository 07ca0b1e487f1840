"""The picture of `top`: which hosts are behind."""

from __future__ import annotations

import msgspec

from torrentdist.client.masters.cluster_picture import SLOWEST, distribution_picture
from torrentdist.model.ids import BundleId, Digest, SupervisorId
from torrentdist.model.policies.policy_messages import DistributionStatusView
from torrentdist.model.wire.fleet_messages import LATER_WAVE, FleetView, HostProgress, HostState

ETL = BundleId("etl-42")


def status(state: str = "running", reason: str = "") -> DistributionStatusView:
    return DistributionStatusView(
        bundle=ETL, owner="", state=state, reason=reason, begun_at=0.0, hosts=4, told=4, wave=1, waves=1,
        everywhere=False, labels={}, ends_at=None, rate=0, priority="normal",
    )  # fmt: skip


def host(name: str, state: HostState, done: int = 0, rate: float = 0.0, reason: str = "") -> HostProgress:
    return HostProgress(supervisor=SupervisorId(name), state=state, done=done, size=100, rate=rate, reason=reason)


FLEET = FleetView(
    id=ETL,
    digest=Digest("a" * 64),
    size=100,
    time_left=50.0,
    hosts=[
        host("done", HostState.DONE, 100),
        host("fast", HostState.FETCHING, 50, 50.0),
        host("slow", HostState.FETCHING, 50, 1.0),
        host("stuck", HostState.STUCK, 10, reason="its disk is full"),
    ],
)


def test_the_hosts_that_are_behind_come_first() -> None:
    """If this fails, an operator looks at hosts that are nearly done."""
    picture = distribution_picture(status(), FLEET)

    assert ["stuck", "slow", "fast"] == [host.supervisor for host in picture.slowest]
    assert (1, 210, 51.0, 50.0) == (picture.done, picture.arrived, picture.rate, picture.eta)


def test_hosts_in_trouble_come_first_and_those_of_later_waves_not_at_all() -> None:
    """An operator looks for the host that holds up a distribution among those that wait for
    theirs."""
    names = ("failed", "gone", "stuck")
    hosts = [
        host("still", HostState.FETCHING, 99),
        host("b-slow", HostState.FETCHING, 0, 1.0),
        host("a-slow", HostState.FETCHING, 0, 1.0),
        *(host(name, HostState(name), 99, 50.0) for name in names),
        host("fast", HostState.FETCHING, 0, 50.0),
    ]
    later = host("later", HostState.WAITING, reason=LATER_WAVE)
    fleet = msgspec.structs.replace(FLEET, hosts=[later, *hosts])
    slowest = [each.supervisor for each in distribution_picture(status(), fleet).slowest]

    assert (SLOWEST, {*names}, ["still", "a-slow"]) == (len(slowest), {*slowest[:3]}, slowest[3:])
