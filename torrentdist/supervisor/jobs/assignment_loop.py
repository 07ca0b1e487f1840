"""Keeps this host's local state in step with its assignment: which workers belong here, and what
the masters say about their jobs.

Always: without an answer, the last answer stands. The local state describes one cluster only. A
job whose answer cannot be used holds up no other.
Never: start or stop a worker.
"""

import asyncio
import contextlib

import msgspec

from torrentdist.log import get_logger
from torrentdist.model.backoff import Retry, kind_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import JobId
from torrentdist.model.records import AssignmentRecord
from torrentdist.supervisor.jobs import placement
from torrentdist.supervisor.jobs.local_state import Facts, LocalStateFile

log = get_logger()

FIRST_PAUSE_SECS = 1.0
LONGEST_PAUSE_SECS = 10.0
GONE_LOOK_SECS = 0.05
"""Interval between checks whether the workers of another cluster have ended."""


class AssignmentLoop:
    def __init__(self, local: LocalStateFile, facts: Facts) -> None:
        self._local = local
        self._facts = facts
        self._ask = asyncio.Event()
        self._again = Retry(FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS)

    async def assign(self, record: AssignmentRecord, session: int | None) -> None:
        """Adopts the leader's new assignment. `session`: that in which it was read; None: it may be
        out of date."""
        if placement.follow(self._local.state, record) != self._local.state:
            await self._local.note(lambda state: placement.follow(state, record))
            self._ask.set()
        if session is not None:
            self._local.confirm(session)

    async def bind_to_cluster(self, cluster: str) -> None:
        """Binds the local state to `cluster`. Returns once no worker of another cluster runs
        here."""
        if self._local.state.cluster not in ("", cluster):
            log.warning("ZooKeeper holds another cluster now, ending the workers of the previous one", cluster=cluster)
            await self._local.note(lambda state: placement.follow(state, AssignmentRecord(generation=0)))
            while self._local.state.places:  # noqa: ASYNC110  # the worker plan removes each place
                await asyncio.sleep(GONE_LOOK_SECS)
        if self._local.state.cluster != cluster:
            await self._local.note(lambda state: msgspec.structs.replace(state, cluster=cluster))

    async def run(self) -> None:
        """Asks the masters about jobs: when the assignment changes, and repeatedly until every job
        is answered."""
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
            if facts is None:
                return job in self._local.state.jobs
            if facts != self._local.state.jobs.get(job):
                await self._local.note(lambda state: placement.informed(state, job, facts))
            return True
        except Exception as error:
            if self._again.failed(f"{job}: {kind_of(error)}"):
                bug = None if isinstance(error, TorrentdistError) else error
                log.info("cannot ask about a job", job=job, reason=str(error), exc_info=bug)
            return False
