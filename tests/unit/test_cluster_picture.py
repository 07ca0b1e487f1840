"""The picture of `top`: what needs attention, and which hosts are behind."""

from __future__ import annotations

from torrentdist.client.masters.cluster_picture import attention, distribution_picture
from torrentdist.model.ids import BundleId, Digest, MasterId, SupervisorId
from torrentdist.model.policies.policy_messages import DistributionStatusView
from torrentdist.model.wire.cluster_messages import BundleCounts, ClusterView, MasterView, SupervisorView
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


def test_nothing_is_said_of_a_healthy_cluster_and_the_worst_comes_first() -> None:
    """If this fails, an operator overlooks a lost bundle among lesser troubles, or is woken by
    nothing."""
    well = BundleCounts(total=1, available=1, uploading=0, lost=0, under_replicated=0)
    ill = BundleCounts(total=2, available=1, uploading=0, lost=1, under_replicated=1)
    silent = SupervisorView(
        id=SupervisorId("s1"), host="h", gateway="", slots=1, slots_used=0, labels={}, bundles=None, version="1",
        uptime_secs=1.0, silent_secs=60.0, full="its bundles take more than store.high",
    )  # fmt: skip
    full = MasterView(
        id=MasterId("m2"), host="h", port=1, url="u", uptime_secs=1.0, is_leader=False, version="1",
        full="its disk is full",
    )  # fmt: skip
    calm = ClusterView(leader=MasterId("m"), epoch=1, masters=[], supervisors=[], jobs=[], bundles=well)
    ends = {"m2": 3 * 86_400.0, "s1": -1.0}
    bad = ClusterView(leader=None, epoch=1, masters=[full], supervisors=[silent], jobs=[], bundles=ill, expiring=ends)
    stopped = status("stopped", "a canary failed: h1 (gone)")
    said = attention(bad, [stopped], [distribution_picture(status(), FLEET)])

    assert [] == attention(calm, [status("complete")], [])
    assert [
        "no master leads",
        "1 bundles are lost",
        "1 bundles have too few replicas",
        "supervisor s1 is silent",
        "master m2 is full: its disk is full",
        "supervisor s1 is full: its bundles take more than store.high",
        "the distribution of etl-42 was stopped: a canary failed: h1 (gone)",
        "etl-42 on stuck: its disk is full",
        "the certificate of m2 ends in 3 days",
        "the certificate of s1 has ended",
    ] == said
