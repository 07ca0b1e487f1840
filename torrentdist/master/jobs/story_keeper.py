"""Keeps the stories of the jobs in ZooKeeper, as the leader: a few writes a second at most,
whatever happens.

Always: an event is told once. A new leader reads what the last one wrote, and goes on. Only a job
whose record, places or reports changed is looked at. A story that is too large is shortened.
Never: fail anything else when a story cannot be written.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.records.record_index import Follower
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Create, Delete, Op, Set, TransactionFailed
from torrentdist.log import get_logger
from torrentdist.master.changes.record_loop import CONCERNS_ALL
from torrentdist.master.jobs.job_duties import placement
from torrentdist.master.jobs.job_operations import lacking
from torrentdist.master.jobs.job_story import continued, shortened
from torrentdist.master.master_session import MasterSession
from torrentdist.model.backoff import kind_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.records import JobEvent, JobStatus, StoryRecord, decode, encode
from torrentdist.model.wire.job_messages import WorkerReport

log = get_logger()

WRITE_SECS = 1.0
READ_SECS = 0.6
"""Longest time to read a story for an answer: less than the sender waits for it."""
READS = 64
"""Stories that a new leader reads at once."""
MOST_WRITES = 50
MOST_BYTES = 256 * 1024
"""Most stories, and most bytes, in one transaction."""


class Stories:
    def __init__(self, session: MasterSession, leads: Callable[[], bool]) -> None:
        """`leads`: whether this master leads now."""
        self._session = session
        self._zookeeper = session.zookeeper
        self._leads = leads
        self._epoch = -1
        self._follower = Follower()
        self._places: dict[JobId, dict[int, SupervisorId]] = {}
        self._said: dict[JobId, dict[int, WorkerReport]] = {}
        self._open: set[JobId] = set()
        """Jobs that may have something new to tell."""
        self._known: dict[JobId, StoryRecord | None] = {}
        self._written: dict[JobId, StoryRecord | None] = {}
        self._unwritten: dict[JobId, None] = {}
        """Jobs whose story is to be written, in order."""
        self._write_at = 0.0

    def _begin(self, epoch: int) -> None:
        """Forgets everything in a new epoch: another leader may have written stories since."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._follower = Follower()
            for of_jobs in (self._places, self._said, self._known, self._written, self._unwritten):
                of_jobs.clear()

    async def tell(
        self, snapshot: ClusterSnapshot, reports: Mapping[tuple[JobId, int], WorkerReport], fence: Fence
    ) -> float:
        """Continues all stories. Returns the seconds after which something is left to be
        written."""
        self._begin(fence.epoch)
        self._look_at_changes(snapshot, reports)
        unread = (job for job in [*self._open] if job not in self._known)
        while some := list(islice(unread, READS)):
            for job, story in zip(some, await asyncio.gather(*map(self._read_or_begin, some)), strict=True):
                self._known[job] = self._written[job] = story
        for job in [*self._open]:
            try:
                self._continue(snapshot, job)
            except Exception as error:
                if kind_of(error) in CONCERNS_ALL:
                    raise
                log.exception("a job's story cannot be told", job=job)
                self._open.discard(job)
        return await self._write(fence)

    def _look_at_changes(self, snapshot: ClusterSnapshot, reports: Mapping[tuple[JobId, int], WorkerReport]) -> None:
        news = self._follower.news(snapshot)
        if news is None or news.assignments:
            places: dict[JobId, dict[int, SupervisorId]] = {}
            for (job, worker), host in placement(snapshot).items():
                places.setdefault(job, {})[worker] = host
            self._open.update(_differing(self._places, places))
            self._places = places
        said: dict[JobId, dict[int, WorkerReport]] = {}
        for (job, worker), report in reports.items():
            said.setdefault(job, {})[worker] = report
        self._open.update(_differing(self._said, said))
        self._said = said
        self._open.update({*self._known, *snapshot.jobs} if news is None else news.jobs)
        for job in self._open - snapshot.jobs.keys():
            self._forget(job)
            self._open.discard(job)

    def _continue(self, snapshot: ClusterSnapshot, job: JobId) -> None:
        entry = snapshot.jobs[job]
        self._known[job] = continued(
            self._known[job],
            entry,
            self._places.get(job, {}),
            self._said.get(job, {}),
            now=self._session.server_now(),
            lacking=lacking(snapshot, entry.record),
        )
        if self._known[job] is not self._written[job]:
            self._unwritten[job] = None
        self._open.discard(job)

    def _forget(self, job: JobId) -> None:
        for of_jobs in (self._known, self._written, self._unwritten):
            of_jobs.pop(job, None)

    async def _write(self, fence: Fence) -> float:
        wait = self._write_at - time.monotonic()
        if not self._unwritten or wait > 0:
            return max(0.0, wait) if self._unwritten else float("inf")
        self._write_at = time.monotonic() + WRITE_SECS
        while some := dict(self._next_writes()):
            try:
                await fence.commit([op for _, op in some.values()])
            except TransactionFailed as exc:  # the job is gone, or an answer was lost: its story is read again
                job = [*some][exc.index]
                log.debug("a job's story is not as it was left", job=job, why=str(exc))
                self._forget(job)
                self._open.add(job)
            else:
                for job, (story, _) in some.items():
                    self._written[job] = story
                    del self._unwritten[job]
        return WRITE_SECS if self._open else float("inf")

    def _next_writes(self) -> Iterator[tuple[JobId, tuple[StoryRecord, Op]]]:
        """Yields stories for one transaction, each with its write."""
        size = 0
        for job in islice(self._unwritten, MOST_WRITES):
            story, path = self._known[job], paths.job_story(job)
            assert story is not None
            data = encode(story)
            if len(data) > MOST_BYTES:
                self._known[job] = story = shortened(story)
                data = encode(story)
            size += len(data)
            if size > MOST_BYTES and size > len(data):
                return
            yield job, (story, Create(path, data) if self._written[job] is None else Set(path, data))

    async def _read(self, job: JobId) -> StoryRecord | None:
        path = paths.job_story(job)
        found = await self._zookeeper.get(path)
        return None if found is None else decode(found[0], StoryRecord, path=path)

    async def _read_or_begin(self, job: JobId) -> StoryRecord | None:
        """Returns the story as it is. One that is damaged begins anew."""
        try:
            return await self._read(job)
        except TorrentdistError as error:
            if error.code in CONCERNS_ALL:
                raise
            log.warning("a job's story is damaged and begins anew", job=job, reason=error.message)
            return StoryRecord(status=JobStatus.SUBMITTED)

    async def ending(self, job: JobId) -> list[Op]:
        """Returns the deletion of a job's story, for the transaction that deletes its record."""
        path = paths.job_story(job)
        return [Delete(path)] if await self._zookeeper.exists(path) is not None else []

    async def events(self, job: JobId) -> list[JobEvent] | None:
        """Returns a job's events as far as this master knows. None while ZooKeeper is away."""
        try:
            async with asyncio.timeout(READ_SECS):
                story = (self._known.get(job) if self._leads() else None) or await self._read(job)
        except (TorrentdistError, TimeoutError) as error:
            log.info("a job's story cannot be read", job=job, reason=str(error))
            return None
        return [] if story is None else list(story.events)


def _differing(before: Mapping[JobId, object], now: Mapping[JobId, object]) -> set[JobId]:
    """Returns the jobs that one of the two says something else about."""
    return {job for job in before.keys() | now.keys() if before.get(job) != now.get(job)}
