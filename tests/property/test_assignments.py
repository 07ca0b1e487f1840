"""What a leader writes into assignments, for any jobs, hosts and assignments before."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from placed_workers import with_workers
from records_of import bundle, job, snapshot, supervisor

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import AssignmentEntry, ClusterSnapshot
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.master.jobs.job_duties import assignment_ops, placement
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.records import AssignmentRecord, WorkerAssignment

HOSTS = [SupervisorId(f"h{n}") for n in range(4)]
JOBS = [JobId(f"j{n}") for n in range(3)]
Worker = tuple[JobId, int]
workers = st.tuples(st.sampled_from(JOBS), st.integers(0, 3))
some_hosts = st.sets(st.sampled_from(HOSTS))


def is_free(seen: ClusterSnapshot, host: SupervisorId, used: Counter[SupervisorId]) -> bool:
    return used[host] < seen.supervisors[host].slots


class World(msgspec.Struct, frozen=True):
    seen: ClusterSnapshot
    silent: set[SupervisorId]
    refused: set[SupervisorId]
    """Hosts whose assignments could not be written lately."""
    settled: bool

    @property
    def closed(self) -> set[SupervisorId]:
        """Hosts whose assignments stay as they are."""
        return self.refused | {host for host in HOSTS if paths.assignment(host) in self.seen.damaged}

    @property
    def unread(self) -> set[JobId]:
        return {job for job in JOBS if paths.job(job) in self.seen.damaged}

    def after(self, seen: ClusterSnapshot) -> ClusterSnapshot:
        resting = {paths.assignment(host) for host in self.refused}
        ops = assignment_ops(seen, silent=self.silent, resting=resting, settled=self.settled)
        return predicted(seen, ops)

    def wanted(self) -> set[Worker]:
        jobs = {id_: entry.record for id_, entry in self.seen.jobs.items()}
        known = {(id_, k) for id_, one in jobs.items() for k in range(one.workers) if str(k) not in one.exits}
        return known | {worker for worker in placement(self.seen) if worker[0] in self.unread}

    def takes_part(self, host: SupervisorId) -> bool:
        entry = self.seen.assignments.get(host)
        return host in self.seen.supervisors and host not in self.silent and not (entry and entry.record.draining)


@st.composite
def worlds(draw: Any) -> World:
    slots = draw(st.dictionaries(st.sampled_from(HOSTS), st.integers(0, 4)))
    sizes = draw(st.dictionaries(st.sampled_from(JOBS), st.integers(0, 4)))
    places = draw(st.dictionaries(workers, st.sampled_from(HOSTS)))
    ended, draining = draw(st.sets(workers)), draw(some_hosts)
    seen = snapshot(
        [bundle("b")],
        supervisors=[msgspec.structs.replace(supervisor(host), slots=n) for host, n in slots.items()],
        jobs=[with_workers(job(id_, ["b"]), size) for id_, size in sizes.items()],
    )
    jobs = {
        id_: msgspec.structs.replace(
            entry, record=msgspec.structs.replace(entry.record, exits={str(k): 0 for of, k in ended if of == id_})
        )
        for id_, entry in seen.jobs.items()
    }
    assignments = {}
    lost_hosts, lost_jobs = draw(some_hosts), draw(st.sets(st.sampled_from(JOBS), max_size=1))
    damaged = {*map(paths.assignment, lost_hosts), *map(paths.job, lost_jobs)}
    jobs = {id_: entry for id_, entry in jobs.items() if id_ not in lost_jobs}
    for host in sorted({*places.values(), *draining} - lost_hosts):
        given_ = [WorkerAssignment(job=of, worker=k, of=4) for (of, k), on in sorted(places.items()) if on == host]
        assignments[host] = AssignmentEntry(AssignmentRecord(workers=tuple(given_), draining=host in draining), 0)
    seen = msgspec.structs.replace(seen, jobs=jobs, assignments=assignments, damaged=frozenset(damaged))
    return World(seen, draw(some_hosts), draw(some_hosts), draw(st.booleans()))


@given(worlds())
def test_each_worker_has_one_place_and_only_open_hosts_get_more(world: World) -> None:
    """If this failed, two hosts would be told to run one worker, or a host that is drained, silent,
    gone or cannot be told would get one."""
    before, after = placement(world.seen), world.after(world.seen)
    named = [(w.job, w.worker) for entry in after.assignments.values() for w in entry.record.workers]
    new = {host for worker, host in placement(after).items() if before.get(worker) != host}

    assert len(named) == len(set(named))
    assert all(world.takes_part(host) and host not in world.closed for host in new)
    assert all(after.assignments.get(host) == world.seen.assignments.get(host) for host in world.closed)


@given(worlds())
def test_nobody_waits_for_a_free_slot_and_nobody_moves_too_soon(world: World) -> None:
    """If this failed, a worker would wait though a host has room, one that has ended would keep its
    place, or a new leader would move a worker that still runs."""
    before, after = placement(world.seen), placement(world.after(world.seen))
    used = Counter(after.values())
    open_hosts = [host for host in HOSTS if world.takes_part(host) and host not in world.closed]
    goes_on = {worker: host for worker, host in before.items() if worker in world.wanted()}

    assert world.wanted() <= after.keys() or not any(is_free(world.seen, host, used) for host in open_hosts)
    assert all(worker in world.wanted() or host in world.closed for worker, host in after.items())
    assert world.settled or goes_on.items() <= after.items()


@given(worlds())
def test_a_second_look_finds_nothing_to_write(world: World) -> None:
    """If this failed, a leader would write assignments for ever."""
    after = world.after(world.seen)

    assert after == world.after(after)
