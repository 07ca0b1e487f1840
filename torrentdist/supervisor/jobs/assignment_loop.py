"""The loop that makes the local state match the assignment: which workers are here, and what their
jobs are.

Always: while nobody answers, the last answer stands. The local state is about one cluster only.
Never: start or stop anything.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from torrentdist.log import get_logger
from torrentdist.model.backoff import Retry
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import JobId
from torrentdist.model.records import AssignmentRecord
from torrentdist.supervisor.jobs import placement
from torrentdist.supervisor.jobs.local_state import LocalStateFile
from torrentdist.supervisor.jobs.worker_services import Facts

log = get_logger()

FIRST_PAUSE_SECS = 1.0
LONGEST_PAUSE_SECS = 10.0
GONE_LOOK_SECS = 0.05
"""Time between two looks whether the workers of another cluster are gone."""


class Assigning:
    def __init__(self, local: LocalStateFile, facts: Facts, on_needs: Callable[[], None]) -> None:
        """`on_needs` is called when the workers may need other bundles than before."""
        self._local = local
        self._facts = facts
        self._on_needs = on_needs
        self._ask = asyncio.Event()
        self._again = Retry(FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS)

    async def assign(self, record: AssignmentRecord) -> None:
        """Takes over what the leader wants now."""
        if placement.follow(self._local.state, record) != self._local.state:
            await self._local.note(lambda state: placement.follow(state, record))
            self._ask.set()
            self._on_needs()

    async def belong_to(self, cluster: str) -> None:
        """Makes the local state be about this cluster. Returns when nothing of another one runs
        here any more."""
        if self._local.state.cluster not in ("", cluster):
            log.warning("ZooKeeper holds another cluster now, ending the workers of the one before", cluster=cluster)
            await self._local.note(lambda state: placement.follow(state, AssignmentRecord(generation=0)))
            while self._local.state.places:  # noqa: ASYNC110  # the plan forgets each when its processes are gone
                await asyncio.sleep(GONE_LOOK_SECS)
            self._on_needs()
        if self._local.state.cluster != cluster:
            await self._local.note(lambda state: msgspec.structs.replace(state, cluster=cluster))

    async def run(self) -> None:
        """Asks about the jobs: at once when the assignment changes, and again until everything is
        answered."""
        while True:
            self._ask.clear()
            jobs = sorted({place.job for place in self._local.state.places})
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
            return job in self._local.state.jobs
        if facts != self._local.state.jobs.get(job):
            await self._local.note(lambda state: placement.informed(state, job, facts))
            self._on_needs()
        return True
