"""Which workers have fallen silent: jobs may ask that each worker touches its heartbeat file.

Always: silence counts from what this process has seen itself, so neither its restart nor a changed
clock makes a worker silent. The first sign of life may take longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torrentdist.model.jobs.job import JobSpec

FILE = "heartbeat"


@dataclass(frozen=True)
class _Seen:
    stamp: int | None
    at: float
    """When this stamp was first seen; monotonic."""


class HeartbeatWatch:
    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._silent: set[str] = set()

    @staticmethod
    def read(homes: Mapping[str, Path]) -> dict[str, int | None]:
        """Returns the stamp of each run's heartbeat file; None where there is no file. Blocks."""
        return {run: _stamp(home / FILE) for run, home in homes.items()}

    def note(self, run: str, stamp: int | None, spec: JobSpec, now: float) -> None:
        """Takes in the stamp that was found at `now`."""
        if not spec.heartbeat_secs:
            return
        seen = self._seen.get(run)
        if seen is None or seen.stamp != stamp:
            seen = self._seen[run] = _Seen(stamp, now)
        limit = spec.heartbeat_secs if seen.stamp is not None else max(spec.heartbeat_secs, spec.heartbeat_start_secs)
        if now - seen.at > limit:
            self._silent.add(run)

    def is_silent(self, run: str) -> bool:
        """Whether this run was silent for too long. Once it was, it stays so."""
        return run in self._silent

    def forget(self, run: str) -> bool:
        """Lets go of a run that is over. Returns whether it was silent."""
        self._seen.pop(run, None)
        silent = run in self._silent
        self._silent.discard(run)
        return silent


def _stamp(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
