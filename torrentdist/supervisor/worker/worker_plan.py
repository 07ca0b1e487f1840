"""Plans what a supervisor does next about each of its workers.

Always: a worker starts only while its barrier is held and the lease is valid, and after the host's
assignment was read in this session. It is stopped before the lease ends, and killed when its
barrier is lost, unless it is proven that no other host can have been given its place. A barrier is
released only when no process of the worker remains.
Pure: no I/O and no clock.
"""

from collections.abc import Iterable

import msgspec

from torrentdist.model.jobs.job import OnIsolation
from torrentdist.supervisor.worker.worker_types import Barrier, Key, Measure, Run, RunLease, Worker

PATIENCE_SECS = 2.0
"""How long a guardian may exceed its time limit before the next harder measure."""
DISOBEDIENT = "its guardian does not end it"


class TakeBarrier(msgspec.Struct, frozen=True):
    key: Key


class ReleaseBarrier(msgspec.Struct, frozen=True):
    key: Key


class StartWorker(msgspec.Struct, frozen=True):
    key: Key


class CarryOver(msgspec.Struct, frozen=True):
    """The run's session was lost, and its barrier was taken again in `session`. The run belongs to
    that session from now on."""

    key: Key
    session: int


class EndRun(msgspec.Struct, frozen=True):
    """Have the guardian stop or kill its run. DESTROY kills a guardian that does not obey, and all
    processes of its run."""

    key: Key
    measure: Measure
    reason: str


class Forget(msgspec.Struct, frozen=True):
    key: Key


Action = TakeBarrier | ReleaseBarrier | StartWorker | CarryOver | EndRun | Forget


def plan(workers: Iterable[Worker], lease: RunLease, now: float) -> list[Action]:
    """Returns at most one action for each worker."""
    actions = [_next(worker, lease, now) for worker in workers]
    return [action for action in actions if action is not None]


def due_at(workers: Iterable[Worker], lease: RunLease, now: float) -> float:
    """Returns when to plan again if nothing happens."""
    moments = [lease.stop, lease.kill]
    for worker in workers:
        moments.append(worker.life.not_before)
        if worker.run is not None:
            moments += lease.limits(worker.run, assigned=worker.assigned)
            moments += [_next_measure_at(worker.run)] if worker.run.measure is not Measure.NONE else []
    return min((moment for moment in moments if moment > now), default=float("inf"))


def _next(worker: Worker, lease: RunLease, now: float) -> Action | None:
    if worker.run is not None:
        return _about_run(worker, worker.run, lease, now)
    wanted, barrier = worker.wants_to_run and worker.confirmed, worker.barrier
    if wanted and barrier is Barrier.FREE:
        return TakeBarrier(worker.key)
    if wanted and barrier is Barrier.HELD and now < lease.stop and now >= worker.life.not_before:
        return StartWorker(worker.key)
    if not wanted and barrier is not Barrier.FREE:
        return ReleaseBarrier(worker.key)
    if not worker.assigned:
        return Forget(worker.key)
    return None


def _about_run(worker: Worker, run: Run, lease: RunLease, now: float) -> Action | None:
    if run.measure is not Measure.DESTROY and (lost := _why_gone(worker, run, lease, now)):
        harder = run.measure is Measure.KILL and now >= _next_measure_at(run)
        if harder:
            return EndRun(worker.key, Measure.DESTROY, DISOBEDIENT)
        return None if run.measure is Measure.KILL else EndRun(worker.key, Measure.KILL, lost)
    if run.session != lease.session and (action := _into_current_session(worker, run, lease, now)):
        return action
    if run.measure is not Measure.NONE:
        return _next_measure(worker, run, now)
    reason = _why_stop(worker, run, lease, now)
    return EndRun(worker.key, Measure.STOP, reason) if reason else None


def _why_gone(worker: Worker, run: Run, lease: RunLease, now: float) -> str:
    """Returns why the run must be gone by now; empty if it may exist."""
    _, kill = lease.limits(run, assigned=worker.assigned)
    if lease.session != run.session:
        return "the session has expired" if now >= kill else ""
    if worker.barrier in (Barrier.FREE, Barrier.ASKED):
        return "the barrier is lost"
    if now >= kill and run.on_isolation is OnIsolation.STOP:
        return "isolated"
    return ""


def _into_current_session(worker: Worker, run: Run, lease: RunLease, now: float) -> Action | None:
    """Returns the next step to put a run that only a proof protects behind a barrier of the current
    session."""
    if lease.session is None or run.measure not in (Measure.NONE, Measure.STOP):
        return None
    if worker.barrier is Barrier.FREE:
        return TakeBarrier(worker.key)
    return CarryOver(worker.key, lease.session) if worker.barrier is Barrier.HELD and now < lease.stop else None


def _why_stop(worker: Worker, run: Run, lease: RunLease, now: float) -> str:
    """Returns why the run should stop; empty if it should go on."""
    if not worker.assigned:
        return "assigned elsewhere"
    if not worker.active:
        return "deactivated"
    if worker.launch is not None and worker.launch.incarnation != run.incarnation:
        return "a different job of this name"
    if run.silent:
        return "silent"
    stop, _ = lease.limits(run, assigned=worker.assigned)
    if now >= stop and (run.on_isolation is OnIsolation.STOP or run.session != lease.session):
        return "isolated"
    return ""


def _next_measure(worker: Worker, run: Run, now: float) -> Action | None:
    """Returns the next harder measure if the last one did not work in time."""
    if now < _next_measure_at(run):
        return None
    if run.measure is Measure.STOP:
        return EndRun(worker.key, Measure.KILL, "it did not stop")
    return EndRun(worker.key, Measure.DESTROY, DISOBEDIENT)


def _next_measure_at(run: Run) -> float:
    grace = run.grace_secs if run.measure is Measure.STOP else 0.0
    return run.measured_at + grace + PATIENCE_SECS
