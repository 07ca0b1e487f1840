"""The values that describe a worker: its assignment, its run, and how long it may run.
Pure: no I/O and no clock.
"""

from enum import StrEnum

import msgspec

from torrentdist.model.ids import JobId
from torrentdist.model.jobs.job import OnIsolation, Restart

Key = tuple[JobId, int]
"""A worker: its job, and its number within the job."""
NEVER = float("-inf")


class Launch(msgspec.Struct, frozen=True):
    """What the plan needs to know about a worker's job."""

    incarnation: str
    """Distinguishes jobs that had the same name at different times."""
    stop_grace_secs: float = 10.0
    on_isolation: OnIsolation = OnIsolation.STOP
    restart: Restart = msgspec.field(default_factory=Restart)


class Life(msgspec.Struct, frozen=True):
    """The history of a worker's restarts and ends."""

    restarts: int = 0
    in_a_row: int = 0
    """Restarts since a run last lasted longer than the longest backoff."""
    not_before: float = 0.0
    """Earliest time for the next start."""
    exit_code: int | None = None
    """Exit code of the latest run."""
    ended: bool = False
    """Whether the restart policy rules out another start."""


class Barrier(StrEnum):
    """The state of a worker's barrier, as far as this host knows."""

    FREE = "free"
    """This host neither owns it nor wants it."""
    ASKED = "asked"
    """This host wants it."""
    UNCLEAR = "unclear"
    """This host may own it."""
    HELD = "held"
    """This host owns it."""


class Measure(StrEnum):
    """The latest measure taken to end a run."""

    NONE = "none"
    STOP = "stop"
    KILL = "kill"
    DESTROY = "destroy"


class Run(msgspec.Struct, frozen=True):
    """The processes of a worker, until they are known to be gone."""

    incarnation: str
    session: int
    """The ZooKeeper session that its barrier belongs to."""
    grace_secs: float
    on_isolation: OnIsolation
    measure: Measure = Measure.NONE
    measured_at: float = 0.0
    silent: bool = False
    """Whether its heartbeat is overdue."""


class Worker(msgspec.Struct, frozen=True):
    key: Key
    assigned: bool
    active: bool = True
    launch: Launch | None = None
    """None until a master has described the job."""
    bundles_here: bool = False
    barrier: Barrier = Barrier.FREE
    run: Run | None = None
    life: Life = Life()
    confirmed: bool = True
    """Whether the host's assignment was read in the present session. What was known before may be
    long out of date."""

    @property
    def wants_to_run(self) -> bool:
        return self.assigned and self.active and self.launch is not None and self.bundles_here and not self.life.ended


class RunLease(msgspec.Struct, frozen=True):
    """How long this host may rely on its barriers."""

    session: int | None
    """The session that the barriers belong to, or None without a session."""
    stop: float
    """When workers must begin to stop."""
    kill: float
    """When workers must be gone."""
    proven: float = NEVER
    """Until when it is proven that no other host was given what is assigned here, although
    ZooKeeper does not answer."""
    ending: float = 0.0
    """Seconds that a worker has to stop once the proof that alone kept it running expires."""

    def limits(self, run: Run, *, assigned: bool) -> tuple[float, float]:
        """Returns when this run must begin to stop, and when it must be gone.

        A proof stays valid across sessions. It does not cover workers that the leader has
        unassigned.
        """
        stop, kill = (self.stop, self.kill) if run.session == self.session else (NEVER, NEVER)
        if assigned and self.proven > stop:
            return self.proven, max(kill, self.proven + self.ending)
        return stop, kill
