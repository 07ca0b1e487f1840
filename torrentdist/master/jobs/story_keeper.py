"""The stories of the jobs, kept in ZooKeeper by the leader: at most one write a second and job,
whatever happens.

Always holds: what is shown was told once; a new leader reads what the last one wrote and goes on.
Must not do: fail anything else when a story cannot be written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Create, Delete, Op, Set, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.log import get_logger
from torrentdist.master.jobs.job_duties import placement
from torrentdist.master.jobs.job_replication import lacking
from torrentdist.master.jobs.job_story import continued
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.records import JobEvent, StoryRecord, decode, encode
from torrentdist.model.wire.job_messages import WorkerReport

log = get_logger()

WRITE_SECS = 1.0
READ_SECS = 0.6
"""Less than whoever asks waits for the rest."""


class Stories:
    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._known: dict[JobId, StoryRecord | None] = {}
        self._written: dict[JobId, StoryRecord | None] = {}
        self._write_at = 0.0
        self._epoch = -1

    def _begin(self, epoch: int) -> None:
        """Somebody else may have told more since."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._known.clear()
            self._written.clear()

    async def tell(
        self, snapshot: ClusterSnapshot, reports: Mapping[tuple[JobId, int], WorkerReport], fence: Fence
    ) -> float:
        """Go on with all stories; in how many seconds something is left to be written."""
        self._begin(fence.epoch)
        places: dict[JobId, dict[int, SupervisorId]] = {}
        said: dict[JobId, dict[int, WorkerReport]] = {}
        for (job, worker), host in placement(snapshot).items():
            places.setdefault(job, {})[worker] = host
        for (job, worker), report in reports.items():
            said.setdefault(job, {})[worker] = report
        for job in self._known.keys() - snapshot.jobs.keys():
            del self._known[job], self._written[job]
        for job, entry in snapshot.jobs.items():
            if job not in self._known:
                self._known[job] = self._written[job] = await self._read(job)
            self._known[job] = continued(
                self._known[job],
                entry,
                places.get(job, {}),
                said.get(job, {}),
                now=time.time(),
                lacking=lacking(snapshot, entry.record),
            )
        return await self._write(fence)

    async def _write(self, fence: Fence) -> float:
        left = [job for job, story in self._known.items() if story is not self._written[job]]
        wait = self._write_at - time.monotonic()
        if not left or wait > 0:
            return max(0.0, wait) if left else float("inf")
        self._write_at = time.monotonic() + WRITE_SECS
        for job in left:
            story, path = self._known[job], paths.job_story(job)
            assert story is not None
            op: Op = Create(path, encode(story)) if self._written[job] is None else Set(path, encode(story))
            try:
                await fence.commit([op])
                self._written[job] = story
            except TransactionFailed as exc:  # the job is gone, or an answer of before was lost: read it again
                log.debug("a job's story is not as it was left", job=job, why=str(exc))
                del self._known[job], self._written[job]
        return float("inf")

    async def _read(self, job: JobId) -> StoryRecord | None:
        path = paths.job_story(job)
        found = await self._zookeeper.get(path)
        return None if found is None else decode(found[0], StoryRecord, path=path)

    async def ending(self, job: JobId) -> list[Op]:
        """What goes with its record."""
        path = paths.job_story(job)
        return [Delete(path)] if await self._zookeeper.exists(path) is not None else []

    async def events(self, job: JobId, *, leads: bool) -> list[JobEvent] | None:
        """Returns a job's events as far as this master knows. None while ZooKeeper is away."""
        try:
            async with asyncio.timeout(READ_SECS):
                story = (self._known.get(job) if leads else None) or await self._read(job)
        except (TorrentdistError, TimeoutError) as error:
            log.info("a job's story cannot be read", job=job, reason=str(error))
            return None
        return [] if story is None else list(story.events)
