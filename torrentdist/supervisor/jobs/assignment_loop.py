"""The loop that makes local state match the assignment: who runs here, and what their jobs are.

Always: without an answer the last one stands; local state is about one cluster only. Never: start or stop anything.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from torrentdist.model.backoff import Retry
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import JobId
from torrentdist.model.records import AssignmentRecord
from torrentdist.supervisor.jobs import placement
from torrentdist.supervisor.jobs.local_ledger import Ledger
from torrentdist.supervisor.jobs.local_state import JobFacts

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECS = 1.0
LONGEST_PAUSE_SECS = 10.0
GONE_LOOK_SECS = 0.05

Facts = Callable[[JobId], Awaitable[JobFacts | None]]
"""Asks the masters about a job; None: they know of none."""


class Assigning:
    """`on_needs` hears that other bundles may be needed."""

    def __init__(self, ledger: Ledger, facts: Facts, on_needs: Callable[[], None]) -> None:
        self._ledger = ledger
        self._facts = facts
        self._on_needs = on_needs
        self._ask = asyncio.Event()
        self._again = Retry(FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS)

    async def assign(self, record: AssignmentRecord) -> None:
        """This is what the leader wants now."""
        if placement.follow(self._ledger.state, record) != self._ledger.state:
            await self._ledger.note(lambda state: placement.follow(state, record))
            self._ask.set()
            self._on_needs()

    async def belong_to(self, cluster: str) -> None:
        """From now on local state is about this cluster. Returns when nothing of another one runs here any more."""
        if self._ledger.state.cluster not in ("", cluster):
            log.warning("ZooKeeper holds another cluster now, ending the workers of the one before", cluster=cluster)
            await self._ledger.note(lambda state: placement.follow(state, AssignmentRecord(generation=0)))
            while self._ledger.state.places:  # noqa: ASYNC110  # the plan forgets each when its processes are gone
                await asyncio.sleep(GONE_LOOK_SECS)
            self._on_needs()
        if self._ledger.state.cluster != cluster:
            await self._ledger.note(lambda state: msgspec.structs.replace(state, cluster=cluster))

    async def run(self) -> None:
        """Ask about jobs: at once when the assignment has changed, and again until everything is answered."""
        while True:
            self._ask.clear()
            jobs = sorted({place.job for place in self._ledger.state.places})
            answered = [await self._learn(job) for job in jobs]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_secs(all(answered))):
                    await self._ask.wait()

    def _pause_secs(self, answered: bool) -> float | None:
        if answered:
            self._again.succeeded()
            return None
        return self._again.pause_secs

    async def _learn(self, job: JobId) -> bool:
        try:
            facts = await self._facts(job)
        except TorrentdistError as error:
            if self._again.failed(f"{job}: {error.code}"):
                log.info("cannot ask about a job", job=job, reason=error.message)
            return False
        if facts is None:
            return job in self._ledger.state.jobs
        if facts != self._ledger.state.jobs.get(job):
            await self._ledger.note(lambda state: placement.informed(state, job, facts))
            self._on_needs()
        return True
