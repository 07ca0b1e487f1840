"""Placement of workers, for any demand, any hosts and any placement before."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from torrentdist.master.jobs.scheduling import Demand, HostSlots, Worker, place
from torrentdist.model.ids import JobId, SupervisorId

HOST_IDS = [SupervisorId(f"h{n}") for n in range(6)]
JOB_IDS = [JobId(f"j{n}") for n in range(3)]

seldom = st.sampled_from([False, False, False, True])
hosts = st.lists(
    st.builds(HostSlots, id=st.sampled_from(HOST_IDS), slots=st.integers(0, 5), draining=seldom, silent=seldom),
    unique_by=lambda host: host.id,
)
demands = st.lists(
    st.builds(Demand, job=st.sampled_from(JOB_IDS), workers=st.integers(0, 8), ended=st.frozensets(st.integers(0, 8))),
    unique_by=lambda demand: demand.job,
)
placements = st.dictionaries(
    st.tuples(st.sampled_from(JOB_IDS), st.integers(0, 8)), st.sampled_from([*HOST_IDS, SupervisorId("gone")])
)
respread = st.sets(st.sampled_from(JOB_IDS))


def wanted(of: list[Demand]) -> set[Worker]:
    return {worker for demand in of for worker in demand.wanted()}


@given(demands, hosts, placements, respread)
def test_slots_are_respected_and_never_wasted(
    of: list[Demand], on: list[HostSlots], before: dict[Worker, SupervisorId], again: set[JobId]
) -> None:
    """C7: a host would get more workers than slots, or a slot would stay free while a worker
    waits. A silent host would get new workers, or lose those that no other host has room for."""
    after = place(of, on, before, again)
    used = Counter(after.values())
    there = {host.id: host for host in on if not host.draining}
    stayed = {worker: host for worker, host in after.items() if there[host].silent}
    left = [there.get(before.get(worker, SupervisorId(""))) for worker in wanted(of) - after.keys()]

    assert set(after) <= wanted(of)
    assert all(count <= there[host].slots for host, count in used.items())
    assert len(after) - len(stayed) == min(len(wanted(of)), sum(h.slots for h in there.values() if not h.silent))
    assert stayed.items() <= before.items()
    assert all(used[home.id] == home.slots for home in left if home)


@given(demands, hosts, placements)
def test_who_can_stay_stays(of: list[Demand], on: list[HostSlots], before: dict[Worker, SupervisorId]) -> None:
    """C14: a running worker would be moved without need, and its work would be lost."""
    first = place(of, on, before)

    assert first == place(of, on, first)


@given(demands, hosts, placements)
def test_a_host_more_moves_nobody(of: list[Demand], on: list[HostSlots], before: dict[Worker, SupervisorId]) -> None:
    """C3: a supervisor that joins would stop work that runs well elsewhere."""
    silent = {host.id for host in on if host.silent}
    settled = place(of, on, before)
    after = place(of, [*on, HostSlots(SupervisorId("new"), 4)], settled)

    assert {worker: host for worker, host in settled.items() if host not in silent}.items() <= after.items()


@given(st.integers(0, 12), st.integers(1, 5))
def test_a_fresh_job_is_spread_evenly(workers: int, count: int) -> None:
    """C14: two workers would be on one host while another host has none."""
    on = [HostSlots(SupervisorId(f"h{n}"), 20) for n in range(count)]
    used = Counter(place([Demand(JobId("j"), workers)], on, {}).values())
    loads = [used[host.id] for host in on]

    assert max(loads) - min(loads) <= 1


@given(demands, hosts, placements)
def test_a_rebalanced_job_is_even(of: list[Demand], on: list[HostSlots], before: dict[Worker, SupervisorId]) -> None:
    """C14: a rebalance would leave an uneven spread."""
    again = {demand.job for demand in of}
    after = place(of, on, before, again)
    takes = [host for host in on if not (host.draining or host.silent)]
    free = {h.id: h.slots - sum(host == h.id for host in after.values()) for h in takes}

    for job in again:
        counts = Counter(host for (name, _), host in after.items() if name == job)
        fullest = max((counts[h] for h in free), default=0)
        assert all(counts[h] >= fullest - 1 for h, slots in free.items() if slots > 0)


def test_a_rebalance_moves_a_worker_where_the_difference_is_two() -> None:
    """C14: a job with both workers on one of two hosts would stay there after a rebalance."""
    job, on = JobId("j"), [HostSlots(host, 2) for host in HOST_IDS[:2]]
    after = place([Demand(job, 2)], on, {(job, 0): HOST_IDS[0], (job, 1): HOST_IDS[0]}, {job})

    assert {(job, 0): HOST_IDS[0], (job, 1): HOST_IDS[1]} == after


def test_a_worker_that_has_ended_gets_no_place() -> None:
    """A batch job would run work again that is done, or take slots from others for it."""
    job = JobId("j")
    after = place([Demand(job, 3, ended=frozenset({1}))], [HostSlots(HOST_IDS[0], 5)], {})

    assert {(job, 0), (job, 2)} == set(after)


def test_a_worker_goes_where_its_job_has_fewest_and_then_where_most_is_free() -> None:
    """C14: workers of one job would gather on a host, or a small host would be filled first. Two
    leaders would decide differently."""
    job, (small, large, larger_name) = JobId("j"), HOST_IDS[:3]
    on = [HostSlots(larger_name, 5), HostSlots(large, 5), HostSlots(small, 3)]
    after = place([Demand(job, 4)], on, {})

    assert {(job, 0): large, (job, 1): larger_name, (job, 2): small, (job, 3): large} == after


def test_a_host_keeps_as_many_workers_as_it_has_slots() -> None:
    """C7: a host whose slots were reduced would run more workers than it has slots, or a silent
    host that is drained would keep its workers."""
    job, host = JobId("j"), HOST_IDS[0]
    demand, before = [Demand(job, 3)], {(job, k): host for k in range(3)}
    for draining, silent, kept in ((False, False, 2), (False, True, 2), (True, False, 0), (True, True, 0)):
        after = place(demand, [HostSlots(host, 2, draining, silent)], before)

        assert {(job, k): host for k in range(kept)} == after


def test_a_rebalance_of_two_jobs_moves_their_own_workers_into_free_slots_alone() -> None:
    """C14: a rebalance would stop workers of other jobs, overfill a small host, or leave free slots
    unused that it has made itself."""
    (a, b, c), (full, small, large) = JOB_IDS, HOST_IDS[:3]
    on = [HostSlots(full, 9), HostSlots(small, 1), HostSlots(large, 6)]
    before = {**{(a, k): full for k in range(8)}, (c, 0): full, (b, 0): large, (b, 1): large}
    after = place([Demand(a, 8), Demand(b, 2), Demand(c, 1)], on, before, {a, b})

    assert {(a, 7): large, (a, 6): small, (a, 5): large, (a, 4): large, (b, 1): full} == {
        worker: host for worker, host in after.items() if before[worker] != host
    }
