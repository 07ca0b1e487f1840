"""A bundle that is ordered again while an earlier order runs, stands, or is over."""

from __future__ import annotations

import msgspec
import pytest
from records_of import bundle, snapshot, supervisor

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.master.policies.distribution_changes import (
    SHOWN_SECS,
    closing_ops,
    end_ops,
    hosts_of,
    retell_ops,
    tell_ops,
    told_of,
)
from torrentdist.master.policies.distribution_orders import DistributionOrder, order_ops
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.policies.bundle_terms import BundleTerms
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState

ETL = BundleId("etl")
ALL = tuple(SupervisorId(id_) for id_ in ("a", "b", "c", "d"))
A, B, C, D = ALL
DAY = 86_400.0


def hosts() -> ClusterSnapshot:
    return snapshot([bundle("etl")], supervisors=[supervisor(id_, rack="r1") for id_ in ALL])


def ordered(seen: ClusterSnapshot, now: float, *supervisors: SupervisorId, **how: object) -> ClusterSnapshot:
    """Returns the records after an order; without supervisors it is for all."""
    order = DistributionOrder(ETL, supervisors=supervisors or None, **how)  # type: ignore[arg-type]
    return predicted(seen, order_ops(seen, order, now))


def complete(seen: ClusterSnapshot, now: float) -> ClusterSnapshot:
    """Returns the records after the distribution has come to its end at `now`."""
    entry = seen.distributions[ETL]
    standing = entry.record.everywhere
    state = DistributionState.STANDING if standing else DistributionState.COMPLETE
    after = predicted(seen, end_ops(entry, state))
    return msgspec.structs.replace(
        after, distributions={ETL: msgspec.structs.replace(after.distributions[ETL], mtime=now)}
    )


def told(seen: ClusterSnapshot, now: float) -> set[SupervisorId]:
    """Returns the hosts that keep the bundle after the leader has done all that is due at `now`."""
    while ETL in seen.distributions and (ops := closing_ops(seen, ETL, now)):
        seen = predicted(seen, ops)
    return told_of(seen, ETL, ALL)


def test_an_order_for_other_hosts_leaves_the_time_of_the_first_ones() -> None:
    """If this fails, hosts that were to keep a bundle for a week keep it for good."""
    seen = complete(ordered(hosts(), 0.0, A, keep_secs=7 * DAY), 10.0)
    seen = complete(ordered(seen, DAY, B), DAY + 10)

    assert {A, B} == told(seen, 6 * DAY)
    assert {B} == told(seen, 8 * DAY)


def test_a_shorter_time_for_other_hosts_frees_nobody_else() -> None:
    """If this fails, hosts lose a bundle that they were to keep for good."""
    running = ordered(hosts(), 0.0, A)
    seen = complete(ordered(running, 5.0, B, keep_secs=DAY), 10.0)

    assert {A, B} == told(seen, DAY - 1)
    assert {A} == told(seen, 2 * DAY)


def test_each_order_ends_at_its_own_time() -> None:
    """If this fails, one of three orders decides for the hosts of all."""
    seen = hosts()
    for host, days in ((A, 3), (B, 1), (C, 2)):
        seen = complete(ordered(seen, 0.0 + days, host, keep_secs=days * DAY), 10.0)
    ends = [told(seen, days * DAY + 2 * SHOWN_SECS) for days in (0, 1, 2, 3)]

    assert [{A, B, C}, {A, C}, {A}, set()] == ends


def test_the_last_order_that_names_a_host_counts() -> None:
    """If this fails, a host can never be told to keep a bundle for longer."""
    seen = complete(ordered(hosts(), 0.0, A, B, keep_secs=DAY), 10.0)
    seen = complete(ordered(seen, 20.0, A), 30.0)

    assert {A} == told(seen, 400 * DAY)


def test_a_standing_order_stays() -> None:
    """If this fails, naming one more host ends a standing order, and nobody is told of it."""
    seen = complete(ordered(hosts(), 0.0, labels={"rack": "r1"}, everywhere=True), 10.0)
    other = supervisor("z", rack="r2")
    seen = msgspec.structs.replace(seen, supervisors={**seen.supervisors, other.id: other})
    seen = complete(ordered(seen, 20.0, A, other.id, keep_secs=DAY), 30.0)
    record = seen.distributions[ETL].record

    assert (DistributionState.STANDING, True, {"rack": "r1"}) == (record.state, record.everywhere, record.labels)
    assert {other.id} < set(hosts_of(seen, record))
    assert set(ALL) == told(seen, 2 * DAY)
    after = predicted(seen, closing_ops(seen, ETL, 2 * DAY))
    assert set() == told_of(after, ETL, [other.id])


def test_a_narrower_order_does_not_slow_the_standing_one() -> None:
    """If this fails, a limit for one host slows every host of a standing order, and those that come
    later."""
    seen = complete(ordered(hosts(), 0.0, labels={"rack": "r1"}, everywhere=True), 10.0)
    late, other = supervisor("late", rack="r1"), supervisor("z", rack="r2")
    seen = msgspec.structs.replace(seen, supervisors={**seen.supervisors, other.id: other})
    seen = ordered(seen, 20.0, A, other.id, terms=BundleTerms(rate=1))
    seen = msgspec.structs.replace(seen, supervisors={**seen.supervisors, late.id: late})
    record = seen.distributions[ETL].record
    seen = predicted(seen, [*retell_ops(seen, record), *tell_ops(seen, record, [late.id])])

    terms = {host: entry.record.terms for host, entry in seen.assignments.items()}
    assert {other.id: {ETL: BundleTerms(rate=1)}} == {host: said for host, said in terms.items() if said}
    assert {*ALL, late.id, other.id} == terms.keys()


def test_standing_orders_for_other_labels_are_refused() -> None:
    """If this fails, the second of two standing orders silently ends the first."""
    seen = complete(ordered(hosts(), 0.0, labels={"rack": "r1"}, everywhere=True), 10.0)

    with pytest.raises(TorrentdistError, match="rack=r1") as caught:
        ordered(seen, 20.0, labels={"rack": "r2"}, everywhere=True)
    assert "distribution_standing" == caught.value.code


def test_an_order_without_waves_does_not_overtake_the_canaries() -> None:
    """If this fails, all hosts are told before the canary has shown that the bundle is good."""
    seen = ordered(hosts(), 0.0, canary=1, concurrency=1)
    first = told_of(seen, ETL, ALL)
    seen = ordered(seen, 5.0)

    assert {A} == first == told_of(seen, ETL, ALL)
    assert (1, 1) == (seen.distributions[ETL].record.canary, seen.distributions[ETL].record.concurrency)


def test_new_terms_reach_the_hosts_of_later_waves() -> None:
    """If this fails, hosts fetch at the old rate for ever."""
    seen = ordered(hosts(), 0.0, terms=BundleTerms(rate=1))
    seen = ordered(seen, 5.0, concurrency=1)
    seen = predicted(seen, retell_ops(seen, seen.distributions[ETL].record))

    assert [{}] * 4 == [seen.assignments[host].record.terms for host in ALL]


def record_of(seen: ClusterSnapshot) -> DistributionRecord:
    return seen.distributions[ETL].record


def test_a_standing_order_is_renewed_with_the_same_labels() -> None:
    """If this fails, a standing order can't be given twice, or keeps the end of the first."""
    standing = {"labels": {"rack": "r1"}, "everywhere": True}
    seen = complete(ordered(hosts(), 0.0, **standing), 10.0)
    seen = ordered(seen, 20.0, keep_secs=DAY, **standing)

    assert (True, {"rack": "r1"}, 20 + DAY) == (
        record_of(seen).everywhere,
        record_of(seen).labels,
        record_of(seen).ends_at,
    )


def test_a_standing_order_takes_over_from_one_for_hosts() -> None:
    """If this fails, an order for all that later ones join is not standing."""
    seen = ordered(hosts(), 0.0, A, labels={})
    seen = ordered(seen, 20.0, labels={"rack": "r1"}, everywhere=True, keep_secs=DAY)

    assert (True, {"rack": "r1"}, 20 + DAY) == (
        record_of(seen).everywhere,
        record_of(seen).labels,
        record_of(seen).ends_at,
    )


def test_a_standing_order_for_every_host_says_so_when_it_refuses() -> None:
    """If this fails, the refusal names no labels at all."""
    seen = complete(ordered(hosts(), 0.0, everywhere=True), 10.0)

    with pytest.raises(TorrentdistError, match="any labels"):
        ordered(seen, 20.0, labels={"rack": "r1"}, everywhere=True)


@pytest.mark.parametrize(
    ("first", "is_over", "second", "expected"),
    [
        pytest.param((2, 3), False, (0, 0), (2, 3), id="none asked: the waves that run stay"),
        pytest.param((2, 3), False, (1, 0), (1, 0), id="a canary alone replaces them"),
        pytest.param((2, 3), False, (0, 1), (0, 1), id="a concurrency alone replaces them"),
        pytest.param((2, 3), True, (0, 0), (0, 3), id="a canary that is over is not asked for again"),
    ],
)
def test_waves_of_an_order_that_joins(
    first: tuple[int, int], is_over: bool, second: tuple[int, int], expected: tuple[int, int]
) -> None:
    """If this fails, a new order drops the waves of one that runs, or can't have its own."""
    seen = ordered(hosts(), 0.0, everywhere=True, canary=first[0], concurrency=first[1])
    seen = complete(seen, 10.0) if is_over else seen
    seen = ordered(seen, 20.0, A, canary=second[0], concurrency=second[1])

    assert expected == (record_of(seen).canary, record_of(seen).concurrency)


def test_a_standing_order_speaks_for_its_own_hosts() -> None:
    """If this fails, naming a host beside a standing order writes down ends that nobody asked
    for."""
    seen = complete(ordered(hosts(), 0.0, everywhere=True), 10.0)
    seen = ordered(seen, 20.0, A, B, keep_secs=DAY)

    assert () == record_of(seen).other_ends


def test_ends_of_hosts_that_are_named_again_are_forgotten() -> None:
    """If this fails, a host has two ends, or a group without hosts stays in the record."""
    seen = ordered(hosts(), 0.0, A, B, keep_secs=DAY)
    seen = ordered(seen, 1.0, C, keep_secs=2 * DAY)
    assert [((A, B), DAY)] == [(group.hosts, group.ends_at) for group in record_of(seen).other_ends]

    seen = ordered(seen, 2.0, B, keep_secs=3 * DAY)
    assert [((A,), DAY), ((C,), 1 + 2 * DAY)] == [(g.hosts, g.ends_at) for g in record_of(seen).other_ends]
    seen = ordered(seen, 3.0, A, C, keep_secs=3 * DAY)
    assert [((B,), 2 + 3 * DAY)] == [(group.hosts, group.ends_at) for group in record_of(seen).other_ends]


def test_what_hosts_keep_for_good_needs_no_record_after_the_end() -> None:
    """If this fails, the record of an order grows with each order before it."""
    seen = complete(ordered(hosts(), 0.0, A), 10.0)
    assert () == record_of(ordered(seen, 20.0, B, keep_secs=DAY)).other_ends
