"""What the console's overview finds in records and in what peers said: running distributions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
from records_of import bundle, snapshot, supervisor

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.presence.attention_sight import AttentionSight
from torrentdist.model.ids import BundleId, PeerId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState
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
    heartbeats: Any = SimpleNamespace(recent=dict, restart_loops=list)
    return ConsoleSight(AttentionSight(records, unused, heartbeats, swarms, unused), unused, unused, swarms)


def told(*hosts: str, order: DistributionRecord | None = None) -> ClusterSnapshot:
    return snapshot(
        [bundle("etl")],
        supervisors=[supervisor(name) for name in ALL],
        assigned={host: ["etl"] for host in hosts},
        distributions=[order] if order else [],
    )


HAS, LACKS = SwarmEntry(digest=DIGEST, complete=True), SwarmEntry(digest=DIGEST, complete=False)


def lines(of: ConsoleSight) -> list[tuple[int, int]]:
    return [(line.done, line.hosts) for line in of.attention.distributions(of.snapshot())]


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
