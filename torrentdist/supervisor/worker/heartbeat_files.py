"""Detects silent workers: a job may require each worker to touch its heartbeat file, or to send its
heartbeat to the gateway.

Always: silence counts only what this process has observed, so neither its restart nor a changed
clock makes a worker silent. The first heartbeat may take longer.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from torrentdist.model.jobs.job import JobSpec

FILE = "heartbeat"
_NONE = (None, 0)
SIGN = "sign"
"""The directory of the file, in the directory that the worker's guardian works in."""


class _Seen(msgspec.Struct, frozen=True):
    stamp: tuple[int | None, int]
    """The file's, and the number of heartbeats that were sent."""
    at: float
    """When this stamp was first seen (monotonic)."""


class HeartbeatWatch:
    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._silent: set[str] = set()
        self._beats: dict[str, int] = {}

    def beat(self, run: str) -> None:
        """Counts a heartbeat that a worker of this run has sent."""
        self._beats[run] = self._beats.get(run, 0) + 1

    @staticmethod
    def read(homes: Mapping[str, Path]) -> dict[str, int | None]:
        """Returns the stamp of each run's heartbeat file, or None if there is no file. Blocks."""
        # Workers that an older release started touch the file in the guardian's directory itself.
        return {run: _stamp(home / SIGN / FILE) or _stamp(home / FILE) for run, home in homes.items()}

    def note(self, run: str, stamp: int | None, spec: JobSpec, now: float) -> None:
        """Records the stamp of the file that was read at `now`."""
        if not spec.heartbeat_secs:
            return
        seen, sent = self._seen.get(run), (stamp, self._beats.get(run, 0))
        if seen is None or seen.stamp != sent:
            seen = self._seen[run] = _Seen(sent, now)
        limit = spec.heartbeat_secs if seen.stamp != _NONE else max(spec.heartbeat_secs, spec.heartbeat_start_secs)
        if now - seen.at > limit:
            self._silent.add(run)

    def is_silent(self, run: str) -> bool:
        """Whether this run has ever been silent for too long."""
        return run in self._silent

    def forget(self, run: str) -> bool:
        """Forgets a run that has ended. Returns whether it was silent."""
        self._seen.pop(run, None)
        self._beats.pop(run, None)
        silent = run in self._silent
        self._silent.discard(run)
        return silent


def _stamp(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
