"""The next step of one worker, exactly at each of its limits."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from torrentdist.model.ids import JobId
from torrentdist.model.jobs.job import OnIsolation
from torrentdist.supervisor.worker.worker_plan import (
    DISOBEDIENT,
    PATIENCE_SECS,
    Action,
    CarryOver,
    EndRun,
    Forget,
    ReleaseBarrier,
    StartWorker,
    TakeBarrier,
    due_at,
    plan,
)
from torrentdist.supervisor.worker.worker_types import Barrier, Launch, Life, Measure, Run, RunLease, Worker

KEY = (JobId("j"), 0)
LEASE = RunLease(session=7, stop=50.0, kill=60.0)
LAUNCH = Launch("i1")
IDLE = Worker(KEY, assigned=True, launch=LAUNCH, bundles_here=True, barrier=Barrier.HELD)
RUN = Run("i1", session=7, grace_secs=5.0, on_isolation=OnIsolation.STOP)
BUSY = replace(IDLE, run=RUN)
STOP, KILL, DESTROY = Measure.STOP, Measure.KILL, Measure.DESTROY


def step(worker: Worker, now: float = 10.0, lease: RunLease = LEASE) -> Action | None:
    actions = plan([worker], lease, now)
    return actions[0] if actions else None


def busy(**changes: object) -> Worker:
    return replace(BUSY, run=replace(RUN, **changes))


@pytest.mark.parametrize(
    ("worker", "now", "expected"),
    [
        (replace(IDLE, barrier=Barrier.FREE), 10.0, TakeBarrier(KEY)),
        (replace(IDLE, barrier=Barrier.ASKED), 10.0, None),
        (replace(IDLE, barrier=Barrier.UNCLEAR), 10.0, None),
        (IDLE, 49.9, StartWorker(KEY)),
        (IDLE, 50.0, None),
        (replace(IDLE, life=Life(not_before=10.0)), 9.9, None),
        (replace(IDLE, life=Life(not_before=10.0)), 10.0, StartWorker(KEY)),
        (replace(IDLE, life=Life(ended=True)), 10.0, ReleaseBarrier(KEY)),
        (replace(IDLE, active=False), 10.0, ReleaseBarrier(KEY)),
        (replace(IDLE, bundles_here=False, barrier=Barrier.ASKED), 10.0, ReleaseBarrier(KEY)),
        (replace(IDLE, launch=None, barrier=Barrier.UNCLEAR), 10.0, ReleaseBarrier(KEY)),
        (replace(IDLE, bundles_here=False, barrier=Barrier.FREE), 10.0, None),
        (replace(IDLE, assigned=False), 10.0, ReleaseBarrier(KEY)),
        (replace(IDLE, assigned=False, barrier=Barrier.FREE), 10.0, Forget(KEY)),
    ],
)
def test_a_worker_without_a_run(worker: Worker, now: float, expected: Action | None) -> None:
    """D1: a worker would start without its barrier or its bundle, or keep a barrier for nothing."""
    assert expected == step(worker, now)


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        (BUSY, ""),
        (replace(BUSY, assigned=False), "assigned elsewhere"),
        (replace(BUSY, active=False), "deactivated"),
        (replace(BUSY, launch=Launch("i2")), "a different job of this name"),
        (replace(BUSY, launch=None), ""),
        (busy(silent=True), "silent"),
        (replace(BUSY, barrier=Barrier.UNCLEAR), ""),
    ],
)
def test_a_run_stops_for_a_reason(worker: Worker, reason: str) -> None:
    """D4: a worker would be stopped for nothing, or go on where it should not."""
    assert (EndRun(KEY, STOP, reason) if reason else None) == step(worker)


@pytest.mark.parametrize("barrier", [Barrier.FREE, Barrier.ASKED])
def test_a_run_without_its_barrier_is_killed(barrier: Barrier) -> None:
    """D6: two workers would run in one place."""
    for measure in (Measure.NONE, STOP):
        assert EndRun(KEY, KILL, "the barrier is lost") == step(replace(busy(measure=measure), barrier=barrier))


@pytest.mark.parametrize(
    ("now", "on_isolation", "expected"),
    [
        (49.9, OnIsolation.STOP, None),
        (50.0, OnIsolation.STOP, EndRun(KEY, STOP, "isolated")),
        (59.9, OnIsolation.STOP, EndRun(KEY, STOP, "isolated")),
        (60.0, OnIsolation.STOP, EndRun(KEY, KILL, "isolated")),
        (50.0, OnIsolation.RUN, None),
        (60.0, OnIsolation.RUN, None),
    ],
)
def test_a_run_ends_with_its_lease_unless_its_job_says_otherwise(
    now: float, on_isolation: OnIsolation, expected: Action | None
) -> None:
    """D9: a worker would run on in two places, or stop although its job wants it to run."""
    assert expected == step(busy(on_isolation=on_isolation), now)


@pytest.mark.parametrize(
    ("measure", "since", "expected"),
    [
        (STOP, 5.0 + PATIENCE_SECS - 0.1, None),
        (STOP, 5.0 + PATIENCE_SECS, EndRun(KEY, KILL, "it did not stop")),
        (KILL, PATIENCE_SECS - 0.1, None),
        (KILL, PATIENCE_SECS, EndRun(KEY, DESTROY, DISOBEDIENT)),
        (DESTROY, PATIENCE_SECS - 0.1, None),
        (DESTROY, PATIENCE_SECS, EndRun(KEY, DESTROY, DISOBEDIENT)),
    ],
)
def test_a_run_that_does_not_obey_meets_the_next_measure(
    measure: Measure, since: float, expected: Action | None
) -> None:
    """D7: a worker would run for ever, or be killed before its grace is over."""
    assert expected == step(busy(measure=measure, measured_at=10.0), 10.0 + since)


@pytest.mark.parametrize(
    ("measure", "since", "expected"),
    [
        (Measure.NONE, 0.0, EndRun(KEY, KILL, "isolated")),
        (STOP, 0.0, EndRun(KEY, KILL, "isolated")),
        (KILL, PATIENCE_SECS - 0.1, None),
        (KILL, PATIENCE_SECS, EndRun(KEY, DESTROY, DISOBEDIENT)),
        (DESTROY, PATIENCE_SECS - 0.1, None),
        (DESTROY, PATIENCE_SECS, EndRun(KEY, DESTROY, DISOBEDIENT)),
    ],
)
def test_a_run_that_must_be_gone_meets_the_next_measure(
    measure: Measure, since: float, expected: Action | None
) -> None:
    """D9: a worker would outlive its lease."""
    assert expected == step(busy(measure=measure, measured_at=70.0), 70.0 + since)


PROVEN = replace(LEASE, session=8, proven=100.0, ending=2.0)
"""A new session, and a proof that covers the runs of the old one."""


@pytest.mark.parametrize(
    ("worker", "now", "expected"),
    [
        (replace(BUSY, barrier=Barrier.FREE), 10.0, TakeBarrier(KEY)),
        (BUSY, 49.9, CarryOver(KEY, 8)),
        (BUSY, 50.0, None),
        (replace(BUSY, barrier=Barrier.ASKED), 10.0, None),
        (replace(BUSY, barrier=Barrier.ASKED), 100.0, EndRun(KEY, STOP, "isolated")),
        (replace(BUSY, barrier=Barrier.ASKED), 102.0, EndRun(KEY, KILL, "the session has expired")),
        (replace(busy(measure=STOP, measured_at=9.0)), 10.0, CarryOver(KEY, 8)),
        (replace(busy(measure=KILL, measured_at=9.0)), 10.0, None),
        (replace(busy(on_isolation=OnIsolation.RUN), barrier=Barrier.ASKED), 100.0, EndRun(KEY, STOP, "isolated")),
        (replace(BUSY, assigned=False), 10.0, EndRun(KEY, KILL, "the session has expired")),
    ],
)
def test_a_run_of_an_older_session_gets_a_barrier_of_the_current_one(
    worker: Worker, now: float, expected: Action | None
) -> None:
    """D10: a worker would be killed though nobody else was given its place, or run without a
    barrier."""
    assert expected == step(worker, now, PROVEN)


def test_without_a_session_no_barrier_is_taken() -> None:
    """D9: a host would ask ZooKeeper for what it cannot get, instead of ending its workers."""
    cut_off = replace(PROVEN, session=None)

    assert None is step(replace(BUSY, barrier=Barrier.FREE), 10.0, cut_off)
    assert EndRun(KEY, STOP, "isolated") == step(BUSY, 100.0, cut_off)


def test_the_plan_is_made_again_at_the_next_moment_that_counts() -> None:
    """D9: a worker would be stopped too late, because nobody looked."""
    lease = replace(LEASE, proven=70.0, ending=3.0)
    stopping = busy(measure=STOP, measured_at=20.0)
    waiting = replace(IDLE, life=Life(not_before=15.0))

    assert [50.0, 60.0, float("inf")] == [due_at([], LEASE, now) for now in (10.0, 50.0, 60.0)]
    assert 15.0 == due_at([waiting], LEASE, 10.0)
    assert 20.0 + 5.0 + PATIENCE_SECS == due_at([stopping], LEASE, 10.0)
    assert [70.0, 73.0] == [due_at([BUSY], lease, now) for now in (60.0, 70.0)]
    assert [60.0] == [due_at([replace(BUSY, assigned=False)], lease, 50.0)]


def test_a_proof_never_shortens_what_a_lease_allows() -> None:
    """D9: an older proof would end workers whose lease is still good."""
    assert (50.0, 60.0) == replace(LEASE, proven=50.0, ending=2.0).limits(RUN, assigned=True)
    assert (51.0, 60.0) == replace(LEASE, proven=51.0, ending=2.0).limits(RUN, assigned=True)
    assert (59.0, 61.0) == replace(LEASE, proven=59.0, ending=2.0).limits(RUN, assigned=True)
    assert (50.0, 60.0) == replace(LEASE, proven=99.0, ending=2.0).limits(RUN, assigned=False)
