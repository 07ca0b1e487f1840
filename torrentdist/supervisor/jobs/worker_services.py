"""The callbacks through which the workers of jobs use the rest of the supervisor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torrentdist.bundle.store.store import StoredBundle, StoreView
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.supervisor.jobs.local_state import JobFacts

Facts = Callable[[JobId], Awaitable[JobFacts | None]]
"""Asks the masters about a job. Returns None if the job does not exist."""


@dataclass(frozen=True)
class WorkerServices:
    store: StoreView
    facts: Facts
    checked: Callable[[BundleId], Awaitable[StoredBundle | None]]
    """Returns a bundle if its files here are as they were published."""
    spec_of: Callable[[JobId, JobFacts, Mapping[BundleId, StoredBundle]], Awaitable[JobSpec]]
    """Returns what to run. Raises an error if this host must not run the job."""
    trouble: Callable[[BundleId], str]
    """Returns why fetching a bundle failed; empty if it has not failed."""
    needs_changed: Callable[[], None]
    """Called when the set of bundles that the workers need may have changed."""
    lease_sent: Callable[[], None]
    """Called when a write that renews the host's lease has been sent to ZooKeeper."""
    gateway: Callable[[], str]
    """Returns the URL of this host's gateway."""
    host: str
    """Address at which other hosts reach this host."""

    job_key: bytes = b""
    """The key of job tokens; empty: the cluster has no secret to make them of."""

    def content(self, bundle: BundleId) -> Path | None:
        """Returns the directory of a published bundle."""
        digest = self.store.lookup(bundle)
        stored = self.store.get(digest) if digest is not None else None
        return None if stored is None else stored.content
