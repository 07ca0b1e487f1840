"""Which workers have fallen silent: those of jobs with `heartbeat_secs` that did not touch their file for so long.

Always holds: silence counts from what this process has seen itself, so that neither its restart nor a clock that is
set makes a worker silent; the first sign of life may take longer. It looks at one file a worker and blocks briefly.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torrentdist.model.jobs.job import JobSpec

FILE = "heartbeat"


@dataclass
class _Seen:
    stamp: int | None
    at: float
    """When the stamp was seen first."""


class Pulse:
    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._silent: set[str] = set()

    def is_silent(self, run: str, home: Path, spec: JobSpec, now: float) -> bool:
        """Whether this run has been silent for too long. Once it is, it stays so."""
        if not spec.heartbeat_secs:
            return False
        stamp = _stamp(home / FILE)
        seen = self._seen.get(run)
        if seen is None or seen.stamp != stamp:
            seen = self._seen[run] = _Seen(stamp, now)
        limit = spec.heartbeat_secs if seen.stamp is not None else max(spec.heartbeat_secs, spec.heartbeat_start_secs)
        if now - seen.at > limit:
            self._silent.add(run)
        return run in self._silent

    def forget(self, run: str) -> bool:
        """It is over; whether it was silent."""
        self._seen.pop(run, None)
        silent = run in self._silent
        self._silent.discard(run)
        return silent


def _stamp(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
