"""The plan of a supervisor's workers in a world where everything can happen to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from property_size import examples

from torrentdist.model.ids import JobId
from torrentdist.model.jobs.job import OnIsolation, Restart, RestartPolicy
from torrentdist.supervisor.worker.worker_life import after_exit, free_slot
from torrentdist.supervisor.worker.worker_plan import (
    CarryOver,
    EndRun,
    Forget,
    ReleaseBarrier,
    StartWorker,
    TakeBarrier,
    due_at,
    plan,
)
from torrentdist.supervisor.worker.worker_types import Barrier, Key, Launch, Life, Measure, Run, RunLease, Worker

KEYS: list[Key] = [(JobId("a"), 0), (JobId("b"), 0)]
TIMEOUT = 10.0
GRACE = 3.0
ENDING = 1.0


@dataclasses.dataclass
class Real:
    """One worker as it really is, whatever the supervisor believes."""

    worker: Worker
    deaf: bool = False
    """Its guardian ignores all requests."""


class World(RuleBasedStateMachine):
    """Carries out every action, and checks the invariants."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.session = 1
        self.sent = self.now
        self.proven = float("-inf")
        self.real = {key: Real(Worker(key, assigned=False)) for key in KEYS}
        self.held_elsewhere: set[Key] = set()

    # what the supervisor sees and does

    @property
    def lease(self) -> RunLease:
        return RunLease(self.session, self.sent + TIMEOUT / 2, self.sent + 0.6 * TIMEOUT, self.proven, ENDING)

    def workers(self) -> list[Worker]:
        return [real.worker for real in self.real.values()]

    def change(self, key: Key, **fields: object) -> None:
        real = self.real[key]
        real.worker = msgspec.structs.replace(real.worker, **fields)

    def settle(self) -> None:
        """Plans and carries out until nothing more is due now."""
        for _ in range(20):
            actions = [a for a in plan(self.workers(), self.lease, self.now) if self.carry_out(a)]
            if not actions:
                return
        raise AssertionError("the plan never comes to an end")

    def carry_out(self, action: object) -> bool:
        match action:
            case TakeBarrier(key):
                worker = self.real[key].worker
                assert worker.wants_to_run or self.is_kept_by_the_proof(worker)
                self.change(key, barrier=Barrier.ASKED)
            case ReleaseBarrier(key):
                assert self.real[key].worker.run is None, "a barrier is given back under a worker"
                self.change(key, barrier=Barrier.FREE)
            case StartWorker(key):
                self.start(key)
            case CarryOver(key, session):
                self.carry_over(key, session)
            case EndRun(key, measure):
                self.real[key].deaf &= measure is not Measure.DESTROY
                self.measure(key, measure)
                if measure is Measure.DESTROY:
                    self.end(key)
            case Forget(key):
                real = self.real[key].worker
                assert real.run is None
                assert real.barrier is Barrier.FREE
                return False
        return True

    def start(self, key: Key) -> None:
        worker = self.real[key].worker
        assert worker.barrier is Barrier.HELD, "started without its barrier"
        assert self.now < self.lease.stop, "started without a lease"
        assert worker.assigned
        assert worker.active
        assert not worker.life.ended
        assert worker.launch is not None
        self.change(key, run=Run(worker.launch.incarnation, self.session, GRACE, worker.launch.on_isolation))

    def is_kept_by_the_proof(self, worker: Worker) -> bool:
        run = worker.run
        in_time = self.now < self.proven + ENDING
        return run is not None and run.session != self.session and worker.assigned and in_time

    def carry_over(self, key: Key, session: int) -> None:
        worker = self.real[key].worker
        assert self.is_kept_by_the_proof(worker), "taken over into a session without a proof of the time between"
        assert worker.barrier is Barrier.HELD, "taken over without its barrier"
        assert self.now < self.lease.stop
        assert worker.run is not None
        self.change(key, run=msgspec.structs.replace(worker.run, session=session))

    def measure(self, key: Key, measure: Measure) -> None:
        run = self.real[key].worker.run
        assert run is not None
        assert (run.measure, measure) != (Measure.KILL, Measure.STOP), "a harder measure is taken back"
        self.change(key, run=msgspec.structs.replace(run, measure=measure, measured_at=self.now))
        if measure is Measure.KILL and not self.real[key].deaf:
            self.end(key)

    def end(self, key: Key) -> None:
        self.change(key, run=None)

    def hears_again(self, key: Key) -> None:
        """Lets a guardian react again. It first carries out what it was told meanwhile."""
        real = self.real[key]
        real.deaf = False
        if real.worker.run is not None and real.worker.run.measure is Measure.KILL:
            self.end(key)

    # events

    @rule(key=st.sampled_from(KEYS), active=st.booleans(), incarnation=st.sampled_from("xy"), run_on=st.booleans())
    def assign(self, key: Key, active: bool, incarnation: str, run_on: bool) -> None:
        isolation = OnIsolation.RUN if run_on else OnIsolation.STOP
        self.change(key, assigned=True, active=active, launch=Launch(incarnation, GRACE, isolation))
        self.settle()

    @rule(isolation=st.sampled_from(OnIsolation))
    def all_goes_well(self, isolation: OnIsolation) -> None:
        """Does what is necessary for all workers to run."""
        self.sent = self.now
        for key, real in self.real.items():
            self.hears_again(key)
            launch = Launch("x", GRACE, isolation)
            self.change(key, assigned=True, active=True, launch=launch, bundles_here=True, life=Life())
            self.settle()
            if real.worker.barrier is Barrier.ASKED:
                self.change(key, barrier=Barrier.HELD)
        self.settle()

    @rule(key=st.sampled_from(KEYS))
    def take_away(self, key: Key) -> None:
        self.change(key, assigned=False)
        self.settle()

    @rule(key=st.sampled_from(KEYS), here=st.booleans())
    def bundles_arrive(self, key: Key, here: bool) -> None:
        self.change(key, bundles_here=here)
        self.settle()

    @rule(key=st.sampled_from(KEYS))
    def barrier_granted(self, key: Key) -> None:
        if self.real[key].worker.barrier is Barrier.ASKED:
            self.change(key, barrier=Barrier.HELD)
            self.settle()

    @rule(key=st.sampled_from(KEYS))
    def barrier_lost(self, key: Key) -> None:
        if self.real[key].worker.barrier is Barrier.HELD:
            self.change(key, barrier=Barrier.ASKED)
            self.settle()

    @rule(key=st.sampled_from(KEYS))
    def guardian_goes_deaf(self, key: Key) -> None:
        self.real[key].deaf = True

    @rule(key=st.sampled_from(KEYS))
    def worker_stops_when_asked(self, key: Key) -> None:
        run = self.real[key].worker.run
        if run is not None and run.measure is Measure.STOP and not self.real[key].deaf:
            self.end(key)
            self.settle()

    @rule(key=st.sampled_from(KEYS), code=st.sampled_from([0, 1]), policy=st.sampled_from(RestartPolicy))
    def worker_ends(self, key: Key, code: int, policy: RestartPolicy) -> None:
        worker = self.real[key].worker
        if worker.run is not None:
            self.change(key, run=None, life=after_exit(worker.life, Restart(policy=policy), code, 1.0, self.now))
            self.settle()

    @rule()
    def write_acknowledged(self) -> None:
        self.sent = self.now
        self.settle()

    @rule()
    def proof(self) -> None:
        self.proven = self.now + 2.0
        self.settle()

    @rule(barrier=st.sampled_from(Barrier))
    def session_lost(self, barrier: Barrier) -> None:
        """Ends the session. Barriers may or may not be known in the next one."""
        self.session += 1
        self.sent = float("-inf")
        for key in KEYS:
            self.change(key, barrier=barrier)
        self.settle()

    @rule(seconds=st.floats(0.0, 30.0))
    def time_passes(self, seconds: float) -> None:
        """Lets time pass. The supervisor wakes up when its plan has said so."""
        until = self.now + seconds
        while True:
            due = due_at(self.workers(), self.lease, self.now)
            if due > until:
                break
            self.now = due
            self.settle()
        self.now = until
        self.settle()

    # invariants

    @invariant()
    def nothing_runs_without_its_barrier(self) -> None:
        """No worker runs without its barrier, unless a guardian that has stopped working is being
        killed."""
        for real in self.real.values():
            run = real.worker.run
            if run is not None and not real.deaf and not self.is_kept_by_the_proof(real.worker):
                assert real.worker.barrier is Barrier.HELD
                assert run.session == self.session

    @invariant()
    def nothing_outlives_the_lease(self) -> None:
        for real in self.real.values():
            run = real.worker.run
            if run is not None and not real.deaf and run.on_isolation is OnIsolation.STOP:
                assert self.now < self.lease.limits(run, assigned=real.worker.assigned)[1]

    @invariant()
    def what_was_taken_from_this_host_ends_with_the_lease(self) -> None:
        """A proof does not cover a worker that was taken from this host, because another host waits
        for its barrier."""
        for real in self.real.values():
            run = real.worker.run
            if run is not None and not (real.deaf or real.worker.assigned) and run.on_isolation is OnIsolation.STOP:
                assert self.now < self.lease.kill

    @invariant()
    def what_can_be_taken_over_is(self) -> None:
        for real in self.real.values():
            run = real.worker.run
            if run is not None and run.measure is Measure.NONE and run.session != self.session:
                assert real.worker.barrier is not Barrier.HELD or self.now >= self.lease.stop

    @invariant()
    def nobody_who_shall_not_run_is_left_alone(self) -> None:
        for real in self.real.values():
            worker, run = real.worker, real.worker.run
            unwanted = not worker.assigned or not worker.active
            if run is not None and unwanted:
                assert run.measure is not Measure.NONE

    @invariant()
    def what_may_run_and_can_runs(self) -> None:
        for real in self.real.values():
            worker = real.worker
            ready = worker.wants_to_run and worker.barrier is Barrier.HELD and self.now >= worker.life.not_before
            assert not (ready and worker.run is None and self.now < self.lease.stop)


World.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=30)
TestWorld = pytest.mark.case("D10")(World.TestCase)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 100.0)), max_size=40),
    st.sampled_from(RestartPolicy),
    st.integers(-1, 5),
)
def test_a_restart_policy_is_kept(exits: list[tuple[int, float]], policy: RestartPolicy, limit: int) -> None:
    """If this fails, a worker is restarted when it must not be, or too fast, or given up too
    soon."""
    restart = Restart(policy=policy, backoff_secs=1.0, max_backoff_secs=60.0, limit=limit)
    life, short_ones = Life(), 0
    for code, ran in exits:
        short_ones = 0 if ran > restart.max_backoff_secs else short_ones
        again = policy is RestartPolicy.ALWAYS or (policy is RestartPolicy.ON_FAILURE and code != 0)
        expected = not again or (limit >= 0 and short_ones >= limit)
        life = after_exit(life, restart, code, ran, 1000.0)

        assert (expected, code) == (life.ended, life.exit_code)
        if expected:
            break
        assert 1000.0 + min(60.0, 2.0**short_ones) == life.not_before
        short_ones += 1


@pytest.mark.parametrize("barrier", Barrier)
def test_nothing_starts_before_the_assignment_was_read(barrier: Barrier) -> None:
    """If this fails, a host that was away for long runs what was taken from it meanwhile."""
    launch = Launch("1", GRACE, OnIsolation.STOP, Restart())
    worker = Worker(KEYS[0], assigned=True, launch=launch, bundles_here=True, barrier=barrier, confirmed=False)

    expected = [] if barrier is Barrier.FREE else [ReleaseBarrier(KEYS[0])]
    assert expected == plan([worker], RunLease(1, 10.0, 12.0), 0.0)


@given(st.sets(st.integers(0, 20)))
def test_a_slot_is_given_once(used: Iterable[int]) -> None:
    """If this fails, two workers of a host share a slot, and compete for what they choose by it."""
    slot = free_slot(set(used))

    assert slot not in set(used)
    assert all(lower in set(used) for lower in range(slot))
