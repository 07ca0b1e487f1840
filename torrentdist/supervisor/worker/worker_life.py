"""Updates a worker's life when it ends, and chooses a slot for a new worker.
Pure: no I/O and no clock.
"""

from collections.abc import Collection

from msgspec.structs import replace

from torrentdist.model.backoff import pause_secs
from torrentdist.model.jobs.job import Restart, RestartPolicy
from torrentdist.supervisor.worker.worker_types import Life


def after_exit(life: Life, restart: Restart, code: int, ran_secs: float, now: float) -> Life:
    """Returns the life of a worker that has ended by itself."""
    again = restart.policy is RestartPolicy.ALWAYS or (restart.policy is RestartPolicy.ON_FAILURE and code != 0)
    in_a_row = 0 if ran_secs > restart.max_backoff_secs else life.in_a_row
    if not again or 0 <= restart.limit <= in_a_row:
        return replace(life, exit_code=code, ended=True)
    pause = pause_secs(in_a_row + 1, restart.backoff_secs, restart.max_backoff_secs)
    return Life(life.restarts + 1, in_a_row + 1, now + pause, code)


def after_end(life: Life, code: int | None) -> Life:
    """Returns the life of a worker that the supervisor or the end of its host stopped. This counts
    as no failure."""
    return replace(life, exit_code=code, not_before=0.0)


def free_slot(used: Collection[int]) -> int:
    """Returns the lowest slot number that no worker of this host uses."""
    return next(slot for slot in range(len(used) + 1) if slot not in used)
