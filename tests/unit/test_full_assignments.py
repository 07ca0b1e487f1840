"""Hosts whose assignments have no room for another bundle."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from records_of import bundle, snapshot, supervisor

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import check_size
from torrentdist.master.bundles.bundle_views import fleet_view
from torrentdist.master.changes.assignment_room import MOST_ASSIGNMENT_BYTES, is_full
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.master.policies.distribution_changes import told_of
from torrentdist.master.policies.distribution_orders import DistributionOrder, order_ops
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.policies.bundle_terms import BundleTerms
from torrentdist.model.records import encode
from torrentdist.model.wire.fleet_messages import HostState

NEW = BundleId("n" * 128)
FULL, EMPTY = SupervisorId("a"), SupervisorId("b")


def cluster(bundles: int) -> ClusterSnapshot:
    """Returns a cluster whose first host keeps so many bundles."""
    kept = [f"{n:0128}" for n in range(bundles)]
    return snapshot([bundle(NEW)], supervisors=[supervisor("a"), supervisor("b")], assigned={"a": kept})


@pytest.mark.parametrize("bundles", [6_860, 100_000])
def test_a_host_that_keeps_too_much_holds_up_no_other(bundles: int) -> None:
    """If this fails, the order is refused again and again, and no host behind it gets the
    bundle."""
    seen = cluster(bundles)
    ops = order_ops(seen, DistributionOrder(NEW, terms=BundleTerms(rate=2**50)), 5.0)
    check_size(ops)

    assert {EMPTY} == told_of(predicted(seen, ops), NEW, (FULL, EMPTY))


def test_a_host_that_keeps_too_much_says_so() -> None:
    """If this fails, a user waits for a host that was never told, or reads that its wave has not
    begun."""
    seen = cluster(7_000)
    seen = predicted(seen, order_ops(seen, DistributionOrder(NEW), 5.0))
    states = {host.supervisor: host.state for host in fleet_view(seen, NEW, {}).hosts}

    assert {FULL: HostState.STUCK, EMPTY: HostState.WAITING} == states
    assert ["", "its assignment has no room for another bundle"] == sorted(
        host.reason for host in fleet_view(seen, NEW, {}).hosts
    )


def test_a_damaged_assignment_holds_up_no_other_host() -> None:
    """If this fails, one assignment that cannot be read keeps a bundle from every host."""
    seen = replace(cluster(0), assignments={}, damaged=frozenset({"/assignments/a"}))
    seen = predicted(seen, order_ops(seen, DistributionOrder(NEW), 5.0))

    assert {EMPTY} == seen.assignments.keys()
    assert [("a", "stuck", "its assignment is damaged", False), ("b", "waiting", "", True)] == [
        (host.supervisor, host.state, host.reason, host.is_told) for host in fleet_view(seen, NEW, {}).hosts
    ]


def test_an_assignment_with_room_stays_within_its_bound() -> None:
    """If this fails, an assignment grows until nothing can be written into it any more."""
    most = MOST_ASSIGNMENT_BYTES // 131
    for bundles in range(most - 6, most + 1):
        seen = cluster(bundles)
        after = predicted(seen, order_ops(seen, DistributionOrder(NEW, terms=BundleTerms(rate=2**50)), 5.0))

        assert is_full(seen, FULL) or len(encode(after.assignments[FULL].record)) <= MOST_ASSIGNMENT_BYTES
        assert is_full(seen, FULL) == (after.assignments[FULL] == seen.assignments[FULL])
