"""What the rest of the supervisor does for the workers of jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from torrentdist.bundle.store.store import StoredBundle, StoreView
from torrentdist.model.ids import BundleId, JobId
from torrentdist.supervisor.jobs.local_state import JobFacts

Facts = Callable[[JobId], Awaitable[JobFacts | None]]
"""Asks the masters about a job. Returns None if they know of no such job."""


@dataclass(frozen=True)
class WorkerServices:
    store: StoreView
    facts: Facts
    checked: Callable[[BundleId], Awaitable[StoredBundle | None]]
    """Returns a bundle if it is here exactly as it was published."""
    trouble: Callable[[BundleId], str]
    """Returns why a bundle could not be fetched; empty if it may still come."""
    needs_changed: Callable[[], None]
    """Called when the workers may need other bundles than before."""
    lease_sent: Callable[[], None]
    """Called when a write that keeps the host's lease is on its way to ZooKeeper."""
    gateway: Callable[[], str]
    """Returns the URL of this host's gateway."""
    host: str
    """The address of this host, as other hosts know it."""

    def content(self, bundle: BundleId) -> Path | None:
        """Returns the directory of a published bundle."""
        digest = self.store.lookup(bundle)
        stored = self.store.get(digest) if digest is not None else None
        return None if stored is None else stored.content
