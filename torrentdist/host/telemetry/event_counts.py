"""Counts what a host's events report: fetches and their sources, failed hashes, elections.

Always: it keeps one entry for each fetch in progress and nothing for fetches that ended.
Never: do I/O. The clock is passed in.
"""

from __future__ import annotations

import time
from collections.abc import Callable

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


class EventCounts:
    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._moved: dict[str, tuple[int, float]] = {}
        """For each fetch in progress: the bytes that it has, and when they last became more."""
        metrics.has("fetch_seconds", "fetch_first_byte_seconds", "fetch_ends_total", "fetched_bytes_total")
        metrics.has("holder_copies_total", "hash_failures_total")

    def hear(self, fact: Fact) -> None:
        match fact:
            case DownloadStarted():
                self._moved[fact.digest] = 0, self._clock()
            case DownloadProgress():
                before = self._moved.get(fact.digest)
                if before is None or fact.done > before[0]:
                    self._moved[fact.digest] = fact.done, self._clock()
            case DownloadFinished():
                self._moved.pop(fact.digest, None)
                self._finished(fact)
            case DownloadFailed():
                self._moved.pop(fact.digest, None)
                self._metrics.count("fetch_ends_total", result=STOPPED if fact.code == STOPPED else "failed")
            case HashFailed():
                self._metrics.count("hash_failures_total")
            case LeaderElected(vacant_secs=float(vacant)):
                self._metrics.observe("failover_seconds", vacant)

    def _finished(self, fact: DownloadFinished) -> None:
        self._metrics.count("fetch_ends_total", result="finished")
        self._metrics.observe("fetch_seconds", fact.seconds, size=size_class(fact.size))
        self._metrics.observe("fetch_first_byte_seconds", fact.wait_secs)
        for source, count in (("masters", fact.from_masters), ("peers", fact.from_peers), ("local", fact.local)):
            self._metrics.count("fetched_bytes_total", count, source=source)
        if fact.size:
            self._metrics.count("holder_copies_total", fact.from_masters / fact.size)

    def silence_secs(self) -> float:
        """Returns the longest time since a fetch in progress got its last bytes."""
        now = self._clock()
        return max((now - at for _, at in self._moved.values()), default=0.0)
