"""What a supervisor does next about each of its workers: a pure plan, values in and actions out.

Always holds: a worker is started only while its barrier is held and the lease lasts; it is stopped before the lease
ends, and killed when its barrier is lost, unless it is proven that nobody can have been given its place; a barrier is
given back only when nothing of the worker runs any more. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from torrentdist.model.backoff import pause_secs
from torrentdist.model.ids import JobId
from torrentdist.model.jobs.job import OnIsolation, Restart, RestartPolicy
from torrentdist.model.wire.job_messages import WorkerState

Key = tuple[JobId, int]
NEVER = float("-inf")

FOR_BUNDLES = "for its bundles"

PATIENCE_SECS = 2.0
"""How long a guardian may take beyond what it was told, before the next harder measure."""


@dataclass(frozen=True)
class Launch:
    """Which job a worker belongs to, as far as the plan cares. Two of one name differ in their incarnation."""

    incarnation: str
    stop_grace_secs: float = 10.0
    on_isolation: OnIsolation = OnIsolation.STOP
    restart: Restart = field(default_factory=Restart)


@dataclass(frozen=True)
class Life:
    """How often it has ended."""

    restarts: int = 0
    in_a_row: int = 0
    not_before: float = 0.0
    exit_code: int | None = None
    """Of the last time."""
    ended: bool = False
    """For good, as its restart policy says."""


class Barrier(StrEnum):
    FREE = "free"
    """Not ours, as far as is known, and nothing of ours is there."""
    ASKED = "asked"
    UNCLEAR = "unclear"
    """It may be ours."""
    HELD = "held"


class Measure(StrEnum):
    """What was last done to end a run."""

    NONE = "none"
    STOP = "stop"
    KILL = "kill"
    DESTROY = "destroy"


@dataclass(frozen=True)
class Run:
    """A worker's processes, until they are known to be gone."""

    incarnation: str
    session: int
    grace_secs: float
    on_isolation: OnIsolation
    measure: Measure = Measure.NONE
    measured_at: float = 0.0
    silent: bool = False
    """It owes a sign of life."""


@dataclass(frozen=True)
class Worker:
    key: Key
    assigned: bool
    active: bool = True
    launch: Launch | None = None
    """None: nobody has told yet what is to run."""
    bundles_here: bool = False
    barrier: Barrier = Barrier.FREE
    run: Run | None = None
    life: Life = Life()

    @property
    def wants_to_run(self) -> bool:
        launch = self.launch
        return self.assigned and self.active and launch is not None and self.bundles_here and not self.life.ended


@dataclass(frozen=True)
class RunLease:
    """How long this host may count on its barriers. `session`: that they belong to; None: there is none."""

    session: int | None
    stop: float
    """From then on the workers have to be stopping."""
    kill: float
    """By then they have to be gone."""
    proven: float = NEVER
    """Until when nobody can have been given what is assigned here, although ZooKeeper is away."""
    ending: float = 0.0
    """How much time there is for the end of what only the proof keeps."""

    def limits(self, run: Run, *, assigned: bool) -> tuple[float, float]:
        """When this run has to be stopping, and by when to be gone. A proof holds across sessions; it says nothing of
        what the leader has taken from this host."""
        stop, kill = (self.stop, self.kill) if run.session == self.session else (NEVER, NEVER)
        if assigned and self.proven > stop:
            return self.proven, max(kill, self.proven + self.ending)
        return stop, kill


@dataclass(frozen=True)
class TakeBarrier:
    key: Key


@dataclass(frozen=True)
class ReleaseBarrier:
    key: Key


@dataclass(frozen=True)
class StartWorker:
    key: Key


@dataclass(frozen=True)
class CarryOver:
    """Its session was lost, its barrier has been taken again in this one: it belongs to that from now on."""

    key: Key
    session: int


@dataclass(frozen=True)
class StopWorker:
    key: Key
    reason: str


@dataclass(frozen=True)
class KillWorker:
    key: Key
    reason: str


@dataclass(frozen=True)
class Destroy:
    """The guardian doesn't do its work: end it, and what it leaves."""

    key: Key


@dataclass(frozen=True)
class Forget:
    key: Key


Action = TakeBarrier | ReleaseBarrier | StartWorker | CarryOver | StopWorker | KillWorker | Destroy | Forget


def plan(workers: Iterable[Worker], lease: RunLease, now: float) -> list[Action]:
    actions = [_next(worker, lease, now) for worker in workers]
    return [action for action in actions if action is not None]


def due_at(workers: Iterable[Worker], lease: RunLease, now: float) -> float:
    """When to plan again if nothing happens."""
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
    wanted, barrier = worker.wants_to_run, worker.barrier
    if wanted and barrier is Barrier.FREE:
        return TakeBarrier(worker.key)
    if wanted and barrier is Barrier.HELD and now < lease.stop and now >= worker.life.not_before:
        return StartWorker(worker.key)
    if not wanted and barrier is not Barrier.FREE:
        return ReleaseBarrier(worker.key)
    if not worker.assigned and barrier is Barrier.FREE:
        return Forget(worker.key)
    return None


def _about_run(worker: Worker, run: Run, lease: RunLease, now: float) -> Action | None:
    if run.measure is not Measure.DESTROY and (lost := _lost(worker, run, lease, now)):
        harder = run.measure is Measure.KILL and now >= _next_measure_at(run)
        if harder:
            return Destroy(worker.key)
        return None if run.measure is Measure.KILL else KillWorker(worker.key, lost)
    if run.session != lease.session and (action := _into_the_session_of_now(worker, run, lease, now)):
        return action
    if run.measure is not Measure.NONE:
        return _harder(worker, run, now)
    reason = _why_stop(worker, run, lease, now)
    return StopWorker(worker.key, reason) if reason else None


def _lost(worker: Worker, run: Run, lease: RunLease, now: float) -> str:
    """Why it must be gone by now."""
    _, kill = lease.limits(run, assigned=worker.assigned)
    if lease.session != run.session:
        return "the session is over" if now >= kill else ""
    if worker.barrier in (Barrier.FREE, Barrier.ASKED):
        return "the barrier is lost"
    if now >= kill and run.on_isolation is OnIsolation.STOP:
        return "isolated"
    return ""


def _into_the_session_of_now(worker: Worker, run: Run, lease: RunLease, now: float) -> Action | None:
    """What it takes that a run which only the proof keeps stands behind its barrier again."""
    if lease.session is None or run.measure not in (Measure.NONE, Measure.STOP):
        return None
    if worker.barrier is Barrier.FREE:
        return TakeBarrier(worker.key)
    return CarryOver(worker.key, lease.session) if worker.barrier is Barrier.HELD and now < lease.stop else None


def _why_stop(worker: Worker, run: Run, lease: RunLease, now: float) -> str:
    if not worker.assigned:
        return "assigned elsewhere"
    if not worker.active:
        return "deactivated"
    if worker.launch is not None and worker.launch.incarnation != run.incarnation:
        return "another job of this name"
    if run.silent:
        return "silent"
    stop, _ = lease.limits(run, assigned=worker.assigned)
    if now >= stop and (run.on_isolation is OnIsolation.STOP or run.session != lease.session):
        return "isolated"
    return ""


def _harder(worker: Worker, run: Run, now: float) -> Action | None:
    if now < _next_measure_at(run):
        return None
    return KillWorker(worker.key, "it did not stop") if run.measure is Measure.STOP else Destroy(worker.key)


def _next_measure_at(run: Run) -> float:
    grace = run.grace_secs if run.measure is Measure.STOP else 0.0
    return run.measured_at + grace + PATIENCE_SECS


# what becomes of one that has ended


def after_exit(life: Life, restart: Restart, code: int, ran_secs: float, now: float) -> Life:
    """It ended by itself."""
    again = restart.policy is RestartPolicy.ALWAYS or (restart.policy is RestartPolicy.ON_FAILURE and code != 0)
    in_a_row = 0 if ran_secs > restart.max_backoff_secs else life.in_a_row
    if not again or 0 <= restart.limit <= in_a_row:
        return replace(life, exit_code=code, ended=True)
    pause = pause_secs(in_a_row + 1, restart.backoff_secs, restart.max_backoff_secs)
    return Life(life.restarts + 1, in_a_row + 1, now + pause, code)


def after_end(life: Life, code: int | None) -> Life:
    """We ended it, or its host did: that is no failure of its own."""
    return replace(life, exit_code=code, not_before=0.0)


# what is said of it


def state_of(worker: Worker, now: float) -> tuple[WorkerState, str]:
    """And what it is waiting for."""
    if worker.run is not None:
        return (WorkerState.RUNNING if worker.run.measure is Measure.NONE else WorkerState.STOPPING), ""
    if worker.life.ended:
        return WorkerState.ENDED, ""
    if not worker.assigned or not worker.active:
        return WorkerState.INACTIVE, ""
    if worker.launch is None:
        return WorkerState.WAITING, "for the job's record"
    if not worker.bundles_here:
        return WorkerState.WAITING, FOR_BUNDLES
    if now < worker.life.not_before:
        return WorkerState.BACKOFF, ""
    return WorkerState.WAITING, "" if worker.barrier is Barrier.HELD else "for its barrier"


def free_slot(used: Collection[int]) -> int:
    """The lowest number that no worker of this host has."""
    return next(slot for slot in range(len(used) + 1) if slot not in used)
