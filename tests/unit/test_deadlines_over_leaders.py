"""Deadlines that outlive a leader count from moments that ZooKeeper knows."""

from __future__ import annotations

import msgspec
import pytest
from records_of import bundle, snapshot, supervisor

from torrentdist.cluster.records.snapshot import AssignmentEntry
from torrentdist.master.policies.wave_plan import waits_since
from torrentdist.model.access.host_record import PresenceRecord
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.records import AssignmentRecord
from torrentdist.model.wire.fleet_messages import HostProgress, HostState

ETL, H1 = BundleId("etl"), SupervisorId("h1")
TOLD_AT, GONE_AT = 1000.0, 1500.0


@pytest.mark.parametrize(
    ("state", "done", "expected"),
    [
        (HostState.STUCK, 0, TOLD_AT),
        (HostState.STUCK, 5, None),
        (HostState.GONE, 0, GONE_AT),
        (HostState.WAITING, 0, None),
        (HostState.FETCHING, 0, None),
    ],
)
def test_a_new_leader_has_no_patience_anew(state: HostState, done: int, expected: float | None) -> None:
    """If this fails, a stuck canary is given up after 51 s by one leader, and never under leaders
    that change all the time. A host that made progress is still given its time."""
    seen = snapshot([bundle("etl")], supervisors=[supervisor("h1")], known=[PresenceRecord(id="h1", absent_at=GONE_AT)])
    told = {H1: AssignmentEntry(AssignmentRecord(bundles=(ETL,)), 0, mtime=TOLD_AT)}
    seen = msgspec.structs.replace(seen, assignments=told)

    assert expected == waits_since(seen, HostProgress(supervisor=H1, state=state, done=done, size=9), ETL)
