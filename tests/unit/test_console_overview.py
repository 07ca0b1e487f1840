"""What the console's overview finds in records and in what peers said: running distributions, and
what needs attention."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from records_of import bundle, snapshot, supervisor

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.bundles.bundle_views import cluster_view
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.overview_views import DistributionLine, Troubles, attention, health
from torrentdist.model.access.host_record import HostRecord
from torrentdist.model.ids import BundleId, MasterId, PeerId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState
from torrentdist.model.wire.cluster_messages import BundleCounts, ClusterView
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.swarm.directory.directory import SwarmDirectory

ETL = BundleId("etl")
DIGEST = bundle("etl").record.digest
ALL = ("a", "b", "c")


def sight(seen: ClusterSnapshot, **said: SwarmEntry) -> ConsoleSight:
    """Returns what the console reads from these records, and from what these supervisors said."""
    directory = SwarmDirectory()
    for number, (name, entry) in enumerate(said.items()):
        announce = SwarmAnnounce(peer=PeerId(name), role=PeerRole.SUPERVISOR, port=7000 + number, swarms=[entry])
        directory.announce(announce, source_host=f"10.0.0.{number + 1}", now=0.0)
    unused: Any = None
    records: Any = SimpleNamespace(snapshot=lambda: seen, server_now=lambda: 0.0)
    swarms: Any = SimpleNamespace(directory=directory)
    return ConsoleSight(records, unused, unused, swarms)


def told(*hosts: str, order: DistributionRecord | None = None) -> ClusterSnapshot:
    return snapshot(
        [bundle("etl")],
        supervisors=[supervisor(name) for name in ALL],
        assigned={host: ["etl"] for host in hosts},
        distributions=[order] if order else [],
    )


HAS, LACKS = SwarmEntry(digest=DIGEST, complete=True), SwarmEntry(digest=DIGEST, complete=False)


def lines(of: ConsoleSight) -> list[tuple[int, int]]:
    return [(line.done, line.hosts) for line in of.distributions(of.snapshot())]


def test_other_hosts_that_have_a_bundle_do_not_hide_a_distribution() -> None:
    """If this fails, an operator is told that nothing runs while a host waits for its bundle."""
    assert [(1, 2)] == lines(sight(told("a", "b"), a=HAS, b=LACKS, c=HAS))
    assert [(1, 2)] == lines(sight(told("a", "b"), a=HAS, c=HAS))
    assert [] == lines(sight(told("a", "b"), a=HAS, b=HAS))


def test_hosts_whose_wave_has_not_begun_are_waited_for() -> None:
    """If this fails, a distribution looks complete as soon as its canary has the bundle."""
    running = DistributionRecord(bundle=ETL, hosts=tuple(map(SupervisorId, ALL)), canary=1)
    over = msgspec.structs.replace(running, state=DistributionState.STOPPED, reason="a canary failed")
    fleet = sight(told("a", order=running), a=HAS).fleet(told("a", order=running), ETL)

    assert [(1, 3)] == lines(sight(told("a", order=running), a=HAS))
    assert [] == lines(sight(told("a", order=over), a=HAS))
    assert ["its wave has not begun"] * 2 == [host.reason for host in fleet.hosts if host.supervisor != "a"]
    assert "a canary failed" == sight(told("a", order=over), a=HAS).fleet(told("a", order=over), ETL).stopped


CLUSTER = ClusterView(
    leader=None, epoch=1, masters=[], supervisors=[], jobs=[],
    bundles=BundleCounts(total=1, available=1, uploading=0, lost=0, under_replicated=0),
)  # fmt: skip


def test_a_stopped_distribution_and_a_host_without_room_need_attention() -> None:
    """If this fails, the console says that all is well while nobody gets the bundle."""
    stopped = DistributionRecord(bundle=ETL, state=DistributionState.STOPPED, reason="a canary failed: a")
    full = SwarmEntry(digest=DIGEST, complete=False, problem="its disk is full")
    seen = told("a", "b", order=stopped)
    troubles = sight(seen, a=full, b=LACKS).troubles(seen)
    found = {(item.what, item.subject): item.detail for item in attention(CLUSTER, troubles, 0.0)}

    assert "a canary failed: a" == found["stopped", "etl"]
    assert "1 host cannot get it, such as a: its disk is full" == found["stuck", "etl"]


@pytest.mark.parametrize(
    ("role", "left", "kind", "detail"),
    [
        ("master", 86_400.0, "masters", "its certificate ends in 1 day"),
        ("supervisor", 3 * 86_400.0, "hosts", "its certificate ends in 3 days"),
        ("supervisor", -1.0, "hosts", "its certificate has ended"),
    ],
)
def test_a_certificate_that_ends_leads_to_its_hosts_page(role: str, left: float, kind: str, detail: str) -> None:
    """If this fails, the link leads nowhere, or an ended certificate has days left."""
    troubles = Troubles(expiring=[HostRecord(id="x", role=role, expires_at=1000.0 + left)])
    *_, found = attention(CLUSTER, troubles, 1000.0)

    assert (kind, "x", detail) == (found.kind, found.subject, found.detail)


def test_hosts_and_masters_without_room_need_attention() -> None:
    """If this fails, the console says that all is well until a fetch fails on a full disk."""
    seen = snapshot(masters=["m1", "m2"], supervisors=[supervisor("a"), supervisor("b")])
    why = {PeerId("m2"): "no disk", PeerId("b"): "no room", PeerId("gone"): "no longer registered"}
    cluster = cluster_view(seen, MasterId("m1"), 0.0, full=why)
    found = attention(cluster, Troubles(), 0.0)

    assert [("full", "masters", "m2", "no disk"), ("full", "hosts", "b", "no room")] == [
        (item.what, item.kind, item.subject, item.detail) for item in found
    ]
    assert "It works, and something needs attention." == health(cluster, found)


def test_a_distribution_without_trouble_needs_no_attention() -> None:
    """If this fails, every running distribution is shown as a trouble."""
    line = DistributionLine(bundle=ETL, size=1, hosts=2, done=1)

    assert ["leader"] == [item.subject for item in attention(CLUSTER, Troubles(running=[line]), 0.0)]
