"""Jobs on leaders that may die at any moment, compared with a model of what was requested and what
is due when.

The decisions are the real ones. A leader carries them out operation by operation, and may die after
each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from property_size import examples
from records_of import bundle, snapshot, supervisor

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Delete, Op, Set
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.master.jobs.job_duties import assignment_ops, drain_ops, happened, ops_of, placement
from torrentdist.master.jobs.job_operations import NewJob, event_ops, submit_ops
from torrentdist.master.jobs.job_views import of_the_places
from torrentdist.master.jobs.lifecycle import Activate, Deactivate, Event, Kill, Rebalance, keeps_places, runs
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId, SupervisorId
from torrentdist.model.jobs.job import JobSpec, Restart, RestartPolicy
from torrentdist.model.records import ENDED, JobRecord, JobStatus, SupervisorRecord
from torrentdist.model.wire.job_messages import WorkerReport, WorkerState

NAMES = ["a", "b"]
HOSTS = [SupervisorId(name) for name in ("h1", "h2", "h3")]
MAX_WAIT = 20.0


class World(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.seen = snapshot([bundle("code", holders=["m1"])])
        self.jobs = 0
        self.due: dict[str, float] = {}
        """When each request is due, by the clock of its sender."""
        self.ended: dict[tuple[JobId, int], tuple[SupervisorId, WorkerReport]] = {}
        """Ends of workers, each with the host that ran it."""
        self.gone_at: dict[JobId, float] = {}

    @initialize(slots=st.lists(st.integers(0, 3), min_size=3, max_size=3))
    def hosts_are_up(self, slots: list[int]) -> None:
        for host, count in zip(HOSTS, slots, strict=True):
            self._set_host(host, msgspec.structs.replace(supervisor(host), slots=count))

    def _set_host(self, host: SupervisorId, record: SupervisorRecord | None) -> None:
        rest = {id_: known for id_, known in self.seen.supervisors.items() if id_ != host}
        self.seen = msgspec.structs.replace(self.seen, supervisors=rest if record is None else {**rest, host: record})

    # transactions, and a leader's round

    def _commit(self, ops: Sequence[Op]) -> None:
        for op in ops:
            self.nobody_has_two_places()  # the leader may die here
            if isinstance(op, Delete):
                gone = JobId(paths.name(op.path))
                kept = {id_: entry for id_, entry in self.seen.jobs.items() if id_ != gone}
                self.gone_at[gone] = self.now
                self.seen = msgspec.structs.replace(self.seen, jobs=kept)
                continue
            if isinstance(op, Set):
                assert op.version == self._version(op.path), "ZooKeeper refuses the write"
            self.seen = predicted(self.seen, [op])
            name = JobId(paths.name(op.path))
            if paths.parent(op.path) == paths.JOBS:  # ZooKeeper gives the time
                entry = msgspec.structs.replace(self.seen.jobs[name], mtime=self.now)
                self.seen = msgspec.structs.replace(self.seen, jobs={**self.seen.jobs, name: entry})

    def _version(self, path: str) -> int:
        known = self.seen.jobs if paths.parent(path) == paths.JOBS else self.seen.assignments
        return {str(id_): entry.version for id_, entry in known.items()}[paths.name(path)]

    def _round(self, settled: bool, dies_after: int | None = None) -> bool:
        """Runs one round of a leader, which dies after `dies_after` operations."""
        seen = self.seen
        heard = {host: [report for at, report in self.ended.values() if at == host] for host in HOSTS}
        reports = of_the_places(heard, placement(seen))
        events = happened(seen, reports, server_now=self.now, max_wait_secs=MAX_WAIT, settled=settled)
        decided = [op for event in events for op in ops_of(seen, event)]
        ops = decided if events else [*assignment_ops(seen, settled=settled)]
        self._commit(ops if dies_after is None else ops[:dies_after])
        return bool(ops)

    def _lead(self) -> None:
        for _ in range(200):
            if not self._round(settled=True):
                return
        raise AssertionError("a leader never comes to rest")

    @rule(settled=st.booleans(), rounds=st.integers(0, 3), dies_after=st.integers(0, 4))
    def a_leader_dies_at_work(self, settled: bool, rounds: int, dies_after: int) -> None:
        for _ in range(rounds):
            self._round(settled)
        self._round(settled, dies_after)

    @rule()
    def a_leader_lives(self) -> None:
        self._lead()
        self._all_is_done()

    @rule()
    def a_leader_has_not_settled(self) -> None:
        """D10, D17: a leader that has not settled may give places, but takes none away from running
        workers."""
        before, live = placement(self.seen), dict(self.seen.jobs)
        for _ in range(50):
            if not self._round(settled=False):
                break
        after = placement(self.seen)

        for worker, host in before.items():
            record = self.seen.jobs[worker[0]].record if worker[0] in self.seen.jobs else None
            goes_on = record is not None and keeps_places(record) and worker[1] < record.workers
            if goes_on and str(worker[1]) not in record.exits and live[worker[0]].record.workers == record.workers:  # type: ignore[union-attr]
                assert host == after.get(worker), "a worker was moved by a leader that has not settled"

    # requests of users

    @rule(name=st.sampled_from(NAMES), workers=st.integers(1, 4), active=st.booleans(), batch=st.booleans())
    def submit(self, name: str, workers: int, active: bool, batch: bool) -> None:
        self.jobs += 1
        policy = RestartPolicy.NEVER if batch else RestartPolicy.ALWAYS
        spec = JobSpec(name=name, command=("true",), workers=workers, restart=Restart(policy=policy))
        taken = any(entry.record.name == name and entry.record.live for entry in self.seen.jobs.values())
        job = JobId(f"{name}-{self.jobs}")
        try:
            self._commit(submit_ops(self.seen, NewJob(job, BundleId("code"), spec, active), self.now))
        except TorrentdistError as error:
            refused = error.code
        else:
            refused = ""
        assert ("job_exists" if taken else "") == refused

    def _ask(self, name: str, event: Event) -> bool:
        try:
            self._commit(event_ops(self.seen, name, event))
        except TorrentdistError as error:
            if error.code not in ("job_state", "job_not_found"):
                raise
            return False
        return True

    def _live(self, name: str) -> str:
        return next((id_ for id_, e in self.seen.jobs.items() if e.record.name == name and e.record.live), name)

    @rule(name=st.sampled_from(NAMES), wait=st.floats(0.0, 30.0))
    def kill(self, name: str, wait: float) -> None:
        """The last kill counts."""
        job = self._live(name)
        if self._ask(job, Kill(self.now, wait)):
            self.due[job] = self.now + wait

    @rule(name=st.sampled_from(NAMES), wait=st.floats(0.0, 30.0), workers=st.integers(0, 5))
    def rebalance(self, name: str, wait: float, workers: int) -> None:
        job = self._live(name)
        if self._ask(job, Rebalance(self.now, wait, workers)):
            self.due[job] = self.now + wait

    @rule(name=st.sampled_from(NAMES), on=st.booleans())
    def switch(self, name: str, on: bool) -> None:
        self._ask(self._live(name), Activate(self.now) if on else Deactivate(self.now))

    @rule(host=st.sampled_from(HOSTS), draining=st.booleans())
    def drain(self, host: SupervisorId, draining: bool) -> None:
        self._commit(drain_ops(self.seen, host, draining))

    # events

    @rule(seconds=st.floats(0.0, 40.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(host=st.sampled_from(HOSTS), slots=st.integers(-1, 3))
    def a_host_comes_or_goes(self, host: SupervisorId, slots: int) -> None:
        self._set_host(host, None if slots < 0 else msgspec.structs.replace(supervisor(host), slots=slots))

    @rule(data=st.data(), code=st.integers(0, 1))
    def a_worker_ends(self, data: st.DataObject, code: int) -> None:
        """It may end in the moment in which its job is deactivated."""
        places = placement(self.seen)
        lasting = [(job, k) for job, k in sorted(places) if (job, k) not in self.ended and self._counts(job)]
        if lasting:
            self._end(*data.draw(st.sampled_from(lasting)), code)

    @rule(name=st.sampled_from(NAMES), number=st.integers(1, 4), code=st.integers(0, 1))
    def its_first_workers_end(self, name: str, number: int, code: int) -> None:
        """Ends many at once, because chance seldom ends all workers of a job."""
        job = JobId(self._live(name))
        for worker in range(number):
            if (job, worker) in placement(self.seen) and (job, worker) not in self.ended and self._counts(job):
                self._end(job, worker, code)

    def _end(self, job: JobId, worker: int, code: int) -> None:
        report = WorkerReport(job=job, worker=worker, state=WorkerState.ENDED, exit_code=code)
        self.ended[job, worker] = placement(self.seen)[job, worker], report

    def _counts(self, job: JobId) -> bool:
        """Whether the end of a worker of this job matters."""
        entry = self.seen.jobs.get(job)
        return entry is not None and keeps_places(entry.record) and entry.record.status is not JobStatus.KILLED

    # invariants

    @invariant()
    def nobody_has_two_places(self) -> None:
        counts = Counter((w.job, w.worker) for entry in self.seen.assignments.values() for w in entry.record.workers)

        assert all(count == 1 for count in counts.values()), counts

    @invariant()
    def an_ended_worker_is_not_given_to_another_host(self) -> None:
        """D10: a host that knows nothing of its end would run it again."""
        for worker, host in placement(self.seen).items():
            if worker in self.ended and self._counts(worker[0]):
                assert host == self.ended[worker][0], f"{worker} has ended elsewhere"

    @invariant()
    def what_is_pending_keeps_its_moment(self) -> None:
        """A4, A5: a pending change keeps its moment, whichever leaders come and go."""
        for id_, entry in self.seen.jobs.items():
            if entry.record.pending is not None:
                assert self.due[id_] == entry.record.pending.due
        for job, at in self.gone_at.items():
            assert at >= self.due[job], "a job is gone before its delay is over"

    @invariant()
    def names_are_given_once(self) -> None:
        """A3: a killed job keeps its name until it is gone."""
        names = Counter(entry.record.name for entry in self.seen.jobs.values() if entry.record.live)

        assert all(count == 1 for count in names.values())

    def _all_is_done(self) -> None:
        """Checks that nothing is left to do after a leader has come to rest."""
        world = self.seen
        for id_, entry in world.jobs.items():
            job = entry.record
            assert job.status is not JobStatus.SUBMITTED
            assert job.pending is None or self.now < self.due[id_], "what is due is not done"
            if job.status in (JobStatus.ACTIVE, JobStatus.INACTIVE, *ENDED):
                assert self._outcome(job) is (job.status if job.status in ENDED else None)
        for host, assignment in world.assignments.items():
            workers = assignment.record.workers
            record = world.supervisors.get(host)
            room = 0 if record is None or assignment.record.draining else record.slots
            assert len(workers) <= room
            for worker in workers:
                assert keeps_places(world.jobs[worker.job].record)
                assert worker.active is runs(world.jobs[worker.job].record), (
                    "a killed job runs, or an active one doesn't"
                )
        self._no_slot_is_wasted(world)

    def _outcome(self, job: JobRecord) -> JobStatus | None:
        """Returns how a job has ended. It has exactly when each of its present workers has."""
        reports = [self.ended.get((job.id, k)) for k in range(job.workers)]
        if None in reports:
            return None
        given_up = job.spec is not None and job.spec.restart.policy is RestartPolicy.ALWAYS
        failed = given_up or any(found is not None and found[1].exit_code for found in reports)
        return JobStatus.FAILED if failed else JobStatus.FINISHED

    def _no_slot_is_wasted(self, world: ClusterSnapshot) -> None:
        open_hosts = [
            record.slots
            for id_, record in world.supervisors.items()
            if not (id_ in world.assignments and world.assignments[id_].record.draining)
        ]
        jobs = [entry.record for entry in world.jobs.values() if keeps_places(entry.record)]
        wanted = sum(len({str(k) for k in range(job.workers)} - job.exits.keys()) for job in jobs)

        assert min(sum(open_hosts), wanted) == len(placement(world))


World.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
TestWorld = World.TestCase


def test_a_supervisor_that_loses_one_worker_and_gains_another_gains_it_last() -> None:
    """C6: a worker would have two places between two writes of one plan (found by the machine
    above)."""
    world = World()
    world.hosts_are_up([0, 0, 2])
    world.a_host_comes_or_goes(HOSTS[0], 2)
    world.submit("a", workers=1, active=False, batch=False)
    world.submit("b", workers=1, active=False, batch=False)
    world.a_leader_dies_at_work(settled=False, rounds=3, dies_after=4)
    world.a_leader_dies_at_work(settled=False, rounds=3, dies_after=4)
    world.a_host_comes_or_goes(HOSTS[2], 0)
    world.kill("a", wait=0.0)

    world.a_leader_lives()  # it looks for a second place before each write


@pytest.mark.parametrize("ended_before", [[3], [0, 1]], ids=["one that goes", "all that stay"])
def test_a_rebalance_to_fewer_workers_counts_those_that_stay(ended_before: list[int]) -> None:
    """If this fails, a job is finished while one of its workers runs, or active for ever."""
    world = World()
    world.hosts_are_up([2, 2, 0])
    world.submit("a", workers=4, active=True, batch=True)
    world.a_leader_lives()
    for worker in ended_before:
        world._end(JobId("a-1"), worker, 0)
    world.a_leader_lives()
    world.rebalance("a", wait=0.0, workers=2)

    world.a_leader_lives()  # it compares the job's state with the workers that have ended
    world.its_first_workers_end("a", 1, 0)
    world.a_leader_lives()
    world.its_first_workers_end("a", 2, 0)
    world.a_leader_lives()

    assert JobStatus.FINISHED is world.seen.jobs[JobId("a-1")].record.status


def test_a_worker_that_ends_during_the_wait_of_a_rebalance_is_not_moved() -> None:
    """D10: its new host would run it again (the machine above looks at its place after each
    write)."""
    world = World()
    world.hosts_are_up([2, 0, 0])
    world.submit("a", workers=2, active=True, batch=True)
    world.a_leader_lives()
    world.rebalance("a", wait=0.0, workers=0)
    world.a_host_comes_or_goes(HOSTS[1], 2)
    world._end(JobId("a-1"), 1, 0)
    world.a_leader_lives()
    world.an_ended_worker_is_not_given_to_another_host()

    assert {(JobId("a-1"), 0): HOSTS[0]} == placement(world.seen)
