"""A worker as values: what is assigned, what runs, and how long it may run. Pure: no I/O and no
clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from torrentdist.model.ids import JobId
from torrentdist.model.jobs.job import OnIsolation, Restart

Key = tuple[JobId, int]
"""A worker: its job and its number within the job."""
NEVER = float("-inf")


@dataclass(frozen=True)
class Launch:
    """What the plan needs to know of a worker's job."""

    incarnation: str
    """Tells apart two jobs that had the same name one after the other."""
    stop_grace_secs: float = 10.0
    on_isolation: OnIsolation = OnIsolation.STOP
    restart: Restart = field(default_factory=Restart)


@dataclass(frozen=True)
class Life:
    """The ends of a worker so far."""

    restarts: int = 0
    in_a_row: int = 0
    """Restarts since it last ran for longer than the longest backoff."""
    not_before: float = 0.0
    """When it may start again."""
    exit_code: int | None = None
    """Exit code of its last run."""
    ended: bool = False
    """Whether its restart policy says that it does not start again."""


class Barrier(StrEnum):
    """The barrier of a worker, as far as this host knows."""

    FREE = "free"
    """This host neither owns it nor wants it."""
    ASKED = "asked"
    """This host wants it."""
    UNCLEAR = "unclear"
    """This host may own it."""
    HELD = "held"
    """This host owns it."""


class Measure(StrEnum):
    """The last thing that was done to end a run."""

    NONE = "none"
    STOP = "stop"
    KILL = "kill"
    DESTROY = "destroy"


@dataclass(frozen=True)
class Run:
    """The processes of a worker, until they are known to be gone."""

    incarnation: str
    session: int
    """The ZooKeeper session that its barrier belongs to."""
    grace_secs: float
    on_isolation: OnIsolation
    measure: Measure = Measure.NONE
    measured_at: float = 0.0
    silent: bool = False
    """Whether its sign of life is overdue."""


@dataclass(frozen=True)
class Worker:
    key: Key
    assigned: bool
    active: bool = True
    launch: Launch | None = None
    """None until a master has told what the job is."""
    bundles_here: bool = False
    barrier: Barrier = Barrier.FREE
    run: Run | None = None
    life: Life = Life()

    @property
    def wants_to_run(self) -> bool:
        return self.assigned and self.active and self.launch is not None and self.bundles_here and not self.life.ended


@dataclass(frozen=True)
class RunLease:
    """How long this host may count on its barriers."""

    session: int | None
    """The session that the barriers belong to; None: there is none."""
    stop: float
    """When workers have to begin to stop."""
    kill: float
    """When workers have to be gone."""
    proven: float = NEVER
    """Until when it is proven that no other host was given what is assigned here, although
    ZooKeeper is away."""
    ending: float = 0.0
    """Seconds that a worker has to stop in once only a proof kept it, and the proof expires."""

    def limits(self, run: Run, *, assigned: bool) -> tuple[float, float]:
        """Returns when this run has to begin to stop, and when it has to be gone.

        A proof holds across sessions. It says nothing of what the leader has taken from this host.
        """
        stop, kill = (self.stop, self.kill) if run.session == self.session else (NEVER, NEVER)
        if assigned and self.proven > stop:
            return self.proven, max(kill, self.proven + self.ending)
        return stop, kill
