"""Detects silent workers: a job may require each worker to touch its heartbeat file.

Always: silence counts only what this process has observed, so neither its restart nor a changed
clock makes a worker silent. The first heartbeat may take longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torrentdist.model.jobs.job import JobSpec

FILE = "heartbeat"
SIGN = "sign"
"""The directory of the file, in the directory that the worker's guardian works in."""


@dataclass(frozen=True)
class _Seen:
    stamp: int | None
    at: float
    """When this stamp was first seen (monotonic)."""


class HeartbeatWatch:
    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._silent: set[str] = set()

    @staticmethod
    def read(homes: Mapping[str, Path]) -> dict[str, int | None]:
        """Returns the stamp of each run's heartbeat file, or None if there is no file. Blocks."""
        # Workers that an older release started touch the file in the guardian's directory itself.
        return {run: _stamp(home / SIGN / FILE) or _stamp(home / FILE) for run, home in homes.items()}

    def note(self, run: str, stamp: int | None, spec: JobSpec, now: float) -> None:
        """Records the stamp that was read at `now`."""
        if not spec.heartbeat_secs:
            return
        seen = self._seen.get(run)
        if seen is None or seen.stamp != stamp:
            seen = self._seen[run] = _Seen(stamp, now)
        limit = spec.heartbeat_secs if seen.stamp is not None else max(spec.heartbeat_secs, spec.heartbeat_start_secs)
        if now - seen.at > limit:
            self._silent.add(run)

    def is_silent(self, run: str) -> bool:
        """Whether this run has ever been silent for too long."""
        return run in self._silent

    def forget(self, run: str) -> bool:
        """Forgets a run that has ended. Returns whether it was silent."""
        self._seen.pop(run, None)
        silent = run in self._silent
        self._silent.discard(run)
        return silent


def _stamp(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
