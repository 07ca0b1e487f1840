"""The picture of `top`: which hosts are behind."""

from __future__ import annotations

from torrentdist.client.masters.cluster_picture import distribution_picture
from torrentdist.model.ids import BundleId, Digest, SupervisorId
from torrentdist.model.policies.policy_messages import DistributionStatusView
from torrentdist.model.wire.fleet_messages import FleetView, HostProgress, HostState

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
