"""How distributions end: what hosts keep, and for how long."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from records_of import bundle, snapshot

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Delete, Op
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.master.policies.distribution_changes import (
    KEEP_SECS,
    SHOWN_SECS,
    cancel_ops,
    closing_ops,
    give_up_ops,
    told_of,
    unless_changed,
)
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState
from torrentdist.model.records import BundleState

ETL = BundleId("etl")
HOSTS = (SupervisorId("h1"), SupervisorId("h2"))
ENDED = 1000.0


def ended(
    state: DistributionState = DistributionState.COMPLETE,
    ends_at: float | None = None,
    bundle_state: BundleState = BundleState.AVAILABLE,
) -> ClusterSnapshot:
    """Makes a distribution to two hosts whose record was written last at ENDED."""
    record = DistributionRecord(bundle=ETL, state=state, hosts=HOSTS, ends_at=ends_at)
    told = {str(host): ["etl", "other"] for host in HOSTS}
    seen = snapshot([bundle("etl", state=bundle_state)], assigned=told, distributions=[record])
    entry = msgspec.structs.replace(seen.distributions[ETL], mtime=ENDED)
    return msgspec.structs.replace(seen, distributions={ETL: entry})


def closed(seen: ClusterSnapshot, now: float) -> tuple[bool, int]:
    """Returns whether the record is still there, and how many hosts keep the bundle."""
    after = predicted(seen, closing_ops(seen, ETL, now))
    return ETL in after.distributions, len(told_of(after, ETL, HOSTS))


@pytest.mark.parametrize("state", [DistributionState.COMPLETE, DistributionState.STOPPED, DistributionState.CANCELLED])
def test_hosts_keep_a_bundle_when_the_record_of_its_distribution_is_old(state: DistributionState) -> None:
    """If this fails, every host drops a bundle for room a week after it was distributed for
    good."""
    seen = ended(state)

    assert (True, 2) == closed(seen, ENDED + KEEP_SECS - 1)
    assert (False, 2) == closed(seen, ENDED + KEEP_SECS + 1)


def test_a_cancelled_order_ends_no_fetch_of_an_earlier_one() -> None:
    """If this fails, a host of an earlier order that fetches slowly never gets the bundle."""
    record = DistributionRecord(bundle=ETL, state=DistributionState.CANCELLED, hosts=HOSTS[1:])
    told = {str(host): ["etl"] for host in HOSTS}
    seen = snapshot([bundle("etl")], assigned=told, distributions=[record])
    after = predicted(seen, give_up_ops(seen, ETL, HOSTS))

    assert {HOSTS[0]} == told_of(after, ETL, HOSTS)


@pytest.mark.parametrize("state", [DistributionState.RUNNING, DistributionState.STANDING])
def test_a_distribution_under_way_does_not_grow_old(state: DistributionState) -> None:
    """If this fails, a standing order is forgotten after a week."""
    assert (True, 2) == closed(ended(state), ENDED + 2 * KEEP_SECS)


def test_hosts_keep_a_bundle_until_clients_have_seen_it_there() -> None:
    """If this fails, `distribute --keep` waits for hosts that have already let the bundle go."""
    early = ended(ends_at=ENDED - 5)
    late = ended(ends_at=ENDED + 2 * SHOWN_SECS)

    assert (True, 2) == closed(early, ENDED + SHOWN_SECS - 1)
    assert (False, 0) == closed(early, ENDED + SHOWN_SECS)
    assert (True, 2) == closed(late, ENDED + SHOWN_SECS)
    assert (False, 0) == closed(late, ENDED + 2 * SHOWN_SECS)
    assert (True, 2) == closed(ended(DistributionState.RUNNING, ends_at=ENDED), ENDED + SHOWN_SECS)


def test_hosts_are_freed_when_the_bundle_is_removed() -> None:
    """If this fails, the record of a removed bundle stays for ever."""
    assert (False, 0) == closed(ended(bundle_state=BundleState.REMOVED), ENDED)


def test_a_standing_order_that_ends_frees_hosts_that_are_away() -> None:
    """If this fails, a host that registered after the order and then rebooted keeps the bundle for
    ever, or fetches it when it comes back."""
    order = DistributionRecord(bundle=ETL, state=DistributionState.STANDING, everywhere=True, ends_at=ENDED)
    seen = snapshot([bundle("etl")], assigned={"away": ["etl", "other"]}, distributions=[order])
    cancelled = predicted(seen, cancel_ops(seen, ETL, done=()))
    over = predicted(seen, closing_ops(seen, ETL, ENDED + SHOWN_SECS))

    for after in (cancelled, over):
        assert set() == told_of(after, ETL, [SupervisorId("away")])
        assert {SupervisorId("away")} == told_of(after, BundleId("other"), [SupervisorId("away")])


def test_a_decision_has_no_effect_after_a_cancellation() -> None:
    """If this fails, the leader undoes a cancellation that comes while it decides; or it ends, if
    the record is gone."""
    before = ended(DistributionState.RUNNING)
    begun = before.distributions[ETL].record
    wanted: Sequence[Op] = [Delete("/x", 0)]
    decide = unless_changed(ETL, begun, lambda _: wanted)
    cancelled = predicted(before, cancel_ops(before, ETL, done=()))
    gone = msgspec.structs.replace(before, distributions={})

    assert (wanted, [], []) == (decide(before), decide(cancelled), decide(gone))
