"""The rule by which a run ends: how long its lease lasts, and what was asked of it.

The guardian and the init of a run both follow this rule, so that either one ends the run when the
other is stopped. Always: without a lease for exactly this run, the run is over. Never: import
anything but the standard library.
"""

import json
import time
from enum import Enum

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
READ_TRIES = 5
READ_AGAIN_SECS = 0.01
NEVER = float("-inf")


def clock() -> float:
    """Returns the seconds since the host was booted, sleep included. All processes of the host see
    the same value."""
    return time.clock_gettime(CLOCK)


def read_lease(path: str, run: str) -> tuple[float, float]:
    """Returns when to stop and when to be gone; NEVER if there is no lease for this run."""
    for _ in range(READ_TRIES):
        try:
            with open(path, encoding="utf-8") as file:
                stop, kill = json.load(file)["runs"][run]
            return float(stop), float(kill)
        except ValueError:  # the file may be half overwritten
            time.sleep(READ_AGAIN_SECS)
        except (OSError, KeyError, TypeError):
            break
    return NEVER, NEVER


class LeaseStep(Enum):
    """What the lease asks for now."""

    NOTHING = "nothing"
    STOP = "stop"
    """Ask the worker to stop, with SIGTERM."""
    KILL = "kill"
    """Kill everything of the run."""


class LeaseTerm:
    """The time that one run has left. It reads the lease again only when the time that it knows is
    over."""

    def __init__(self, path: str, run: str, grace: float) -> None:
        self._path, self._run, self._grace = path, run, grace
        self._stop_at, self._kill_at = read_lease(path, run)
        self._patience = NEVER
        """When a stop that was asked for has to be over, while the lease lasts."""
        self.stopping = False

    @property
    def next_at(self) -> float:
        """Returns when to call `due` again."""
        return self._kill_at if self.stopping else self._stop_at

    @property
    def over(self) -> bool:
        """Whether it is too late for the run to begin."""
        return clock() >= self._stop_at

    def ask_to_stop(self, now: float) -> None:
        """Gives the worker its grace period from now, but not beyond the lease."""
        if not self.stopping:
            self._patience = now + self._grace
            self._kill_at = min(self._patience, read_lease(self._path, self._run)[1])
            self.stopping = True

    def stop_by_lease(self) -> None:
        """Stops because the other watcher of this run saw the lease end, even if it was renewed
        meanwhile."""
        if not self.stopping:
            self._kill_at = read_lease(self._path, self._run)[1]
            self.stopping = True

    def due(self, now: float) -> LeaseStep:
        """Returns what has to be done at this moment."""
        if now < self.next_at:
            return LeaseStep.NOTHING
        stop, kill = read_lease(self._path, self._run)
        if self.stopping:
            self._kill_at = min(self._patience, kill)
            return LeaseStep.KILL if now >= self._kill_at else LeaseStep.NOTHING
        self._stop_at, self._kill_at = stop, kill
        if now >= kill:
            return LeaseStep.KILL
        if now < stop:
            return LeaseStep.NOTHING
        self.stopping = True
        return LeaseStep.STOP
