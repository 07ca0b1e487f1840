"""The file by which every guardian of this host knows how long its worker may run.

Always holds: it is never later than the barriers allow; a job that runs on when isolated is given time only by a
supervisor that lives. Nobody reads it often: a guardian does so when the time that it knew of is over.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from torrentdist.supervisor.barriers import HostLease
from torrentdist.supervisor.guardian import clock, read_lease, write_whole


class LeaseFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, session: int) -> tuple[float, float]:
        """What the process before us allowed, on the monotonic clock."""
        stop, kill = read_lease(str(self._path), session, lenient=False)
        offset = clock() - time.monotonic()
        return stop - offset, kill - offset

    def write(self, lease: HostLease, proven: float) -> None:
        """`proven`: on the monotonic clock, until when everybody is known to be as blind as we are."""
        offset = clock() - time.monotonic()
        strict = _later(lease.stop, lease.kill, proven + offset)
        lenient = _later(*strict, clock() + lease.extent)
        orders = {"session": lease.session, "strict": strict, "lenient": lenient}
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        write_whole(str(self._path), msgspec.json.encode(orders))


def _later(stop: float, kill: float, until: float) -> tuple[float, float]:
    """At least until then, with as much time for the end as there was."""
    return max(stop, until), max(kill, until + (kill - stop))
