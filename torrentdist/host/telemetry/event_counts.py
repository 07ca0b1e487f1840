"""Counts what a host's events report: fetches and their sources, failed hashes, elections.

Always: it keeps one entry for each fetch in progress, and one for each that failed a moment ago and
will be tried again.
Never: do I/O. The clock is passed in.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from torrentdist.host.telemetry.metric_table import size_class
from torrentdist.host.telemetry.metrics import Metrics
from torrentdist.model.events import (
    DownloadFailed,
    DownloadFinished,
    DownloadProgress,
    DownloadStarted,
    Fact,
    HashFailed,
    LeaderElected,
)

STOPPED = "stopped"
"""The code of a fetch that was cancelled."""


RETRIED_SECS = 90.0
"""How long a failed fetch is remembered. A host retries within 30 s, unless the bundle is no longer
wanted."""


class _Progress(NamedTuple):
    done: int
    moved_at: float
    """When the last bytes arrived; before the first bytes, when the fetch began."""
    failed_at: float | None = None


class EventCounts:
    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._fetches: dict[str, _Progress] = {}
        """By digest."""
        metrics.has("fetch_seconds", "fetch_first_byte_seconds", "fetch_ends_total", "fetched_bytes_total")
        metrics.has("holder_copies_total", "hash_failures_total", "outside_bytes_total")

    def hear(self, fact: Fact) -> None:
        match fact:
            case DownloadStarted():
                self._started(fact.digest)
            case DownloadProgress():
                self._progressed(fact.digest, fact.done)
            case DownloadFinished():
                self._fetches.pop(fact.digest, None)
                self._finished(fact)
            case DownloadFailed():
                self._failed(fact.digest, fact.code)
                self._metrics.count("fetch_ends_total", result=STOPPED if fact.code == STOPPED else "failed")
            case HashFailed():
                self._metrics.count("hash_failures_total")
            case LeaderElected(vacant_secs=float(vacant)):
                self._metrics.observe("failover_seconds", vacant)

    def _started(self, digest: str) -> None:
        """Notes a start. A retry keeps the time at which an earlier try got its last bytes."""
        self._forget()
        known = self._fetches.get(digest)
        self._fetches[digest] = known._replace(failed_at=None) if known else _Progress(0, self._clock())

    def _progressed(self, digest: str, done: int) -> None:
        before = self._fetches.get(digest)
        if before is None or done > before.done:
            self._fetches[digest] = _Progress(done, self._clock())
        elif done < before.done:  # a retry may begin with less than the try before had
            self._fetches[digest] = before._replace(done=done)

    def _failed(self, digest: str, code: str) -> None:
        if code == STOPPED:
            self._fetches.pop(digest, None)
        elif digest in self._fetches:
            self._fetches[digest] = self._fetches[digest]._replace(failed_at=self._clock())

    def _forget(self) -> None:
        now = self._clock()
        self._fetches = {
            digest: fetch
            for digest, fetch in self._fetches.items()
            if fetch.failed_at is None or now - fetch.failed_at <= RETRIED_SECS
        }

    def _finished(self, fact: DownloadFinished) -> None:
        self._metrics.count("fetch_ends_total", result="finished")
        self._metrics.observe("fetch_seconds", fact.seconds, size=size_class(fact.size))
        self._metrics.observe("fetch_first_byte_seconds", fact.wait_secs)
        for source, count in (("masters", fact.from_masters), ("peers", fact.from_peers), ("local", fact.local)):
            self._metrics.count("fetched_bytes_total", count, source=source)
        self._metrics.count("outside_bytes_total", fact.outside)
        if fact.size:
            self._metrics.count("holder_copies_total", fact.from_masters / fact.size)

    def silence_secs(self) -> float:
        """Returns the longest time since a fetch got its last bytes. Tries that fail and begin
        again are one fetch."""
        self._forget()
        now = self._clock()
        return max((now - fetch.moved_at for fetch in self._fetches.values()), default=0.0)
