"""The leader's loop over jobs: it waits for what concerns them, and does what is due.

Always: every change is a decision of job_duties.py, committed through the fence. After a write
whose outcome may be unknown the records are read again before the next decision. Nothing is looked
at again while neither records, reports nor a deadline ask for it. A job whose record grows too
large holds up no other.
Never: judge a supervisor before this leader has listened for long enough.
"""

import asyncio
import time
from collections.abc import Sequence
from functools import partial

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Delete, Op, TransactionFailed, batches
from torrentdist.log import get_logger
from torrentdist.master.changes.record_loop import CONCERNS_ALL, RecordLoop, bug
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.jobs.job_duties import (
    Happened,
    assignment_ops,
    cleanup_ops,
    happened,
    next_due,
    ops_of,
    settling_secs,
)
from torrentdist.master.jobs.job_views import Reports
from torrentdist.master.jobs.story_keeper import Stories
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_session import MasterSession
from torrentdist.master.reads.zookeeper_reachability import ZooKeeperReachability
from torrentdist.model.backoff import Retry, kind_of
from torrentdist.model.configuration.config import Config
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.wire.ha_views import OutageView

log = get_logger()

BATCH = 100
LOOK_SECS = 10.0
FIRST_PAUSE_SECS = 0.01
"""Pause before a decision is made anew because somebody else changed a record first."""


class Picture(msgspec.Struct, frozen=True):
    """All that a round is decided on, except the time. `version` is that of the snapshot."""

    epoch: int
    version: int
    reports: Reports
    silent: frozenset[SupervisorId]
    settled: bool
    resting: frozenset[str]
    """Paths of the records that are left alone for a while, after a failure."""


class JobLoop:
    def __init__(
        self,
        session: MasterSession,
        leadership: Leadership,
        reachability: ZooKeeperReachability,
        heartbeats: Heartbeats,
        stories: Stories,
        config: Config,
    ) -> None:
        self._mirror, self._zookeeper = session.mirror, session.zookeeper
        self._leadership = leadership
        self._reachability = reachability
        self._heartbeats = heartbeats
        self._stories = stories
        self._settling_secs = settling_secs(config.zookeeper.session_timeout_secs)
        self._keep_secs = config.jobs.keep_secs
        self._max_wait = config.replication.max_wait_secs
        self._index = RecordIndex()
        self._overtaken = Retry(FIRST_PAUSE_SECS, 1.0)
        self._trouble = Retry(1.0, LOOK_SECS)
        self._untold = Retry(1.0, LOOK_SECS)
        self._turns = RecordLoop(session.mirror, "jobs")
        """Which records rest after a failure."""
        self._done: Picture | None = None
        """The last picture in which nothing was left to do."""
        self._due_at: float | None = None
        """ZooKeeper's time at which something becomes due in that picture."""
        self._in_doubt = False
        """Whether workers may have been placed otherwise than the mirror shows."""

    async def outage_view(self, supervisor: SupervisorId, within: float) -> OutageView:
        """Returns what a supervisor without ZooKeeper must know to let its workers run on."""
        sees = await self._reachability.sees(within)
        snapshot = self._mirror.snapshot
        masters = {master.id: master.url for master in snapshot.masters.values()}
        if self._in_doubt or not snapshot.present:
            return OutageView(sees=sees, newest=None, masters=masters)
        entry = snapshot.assignments.get(supervisor)
        return OutageView(sees=sees, newest=0 if entry is None else entry.record.generation, masters=masters)

    async def run(self) -> None:
        while True:
            snapshot, wait = self._mirror.snapshot, LOOK_SECS
            try:
                if self._in_doubt:
                    await self._resync()
                    wait = 0.0
                elif self._leadership.is_leader() and snapshot.present:
                    wait = await self._step(snapshot)
                    self._overtaken.succeeded()
                    self._trouble.succeeded()
            except TransactionFailed as exc:
                log.debug("a job's record changed under the leader", why=str(exc))
                self._in_doubt = True
                self._overtaken.failed("changed")
                wait = self._overtaken.pause_secs
            except Exception as error:
                if self._trouble.failed(kind_of(error)):
                    log.info("jobs wait", error=str(error), exc_info=bug(error))
                wait = self._trouble.pause_secs
            await self._pause(snapshot, wait)

    async def _step(self, snapshot: ClusterSnapshot) -> float:
        """Does what is due. Returns the seconds after which to look again though nothing
        changes."""
        now = self._zookeeper.server_now()
        if now is None:
            return LOOK_SECS
        picture = self._look(snapshot)
        if not self._is_done(snapshot, picture, now):
            if await self._round(snapshot, picture, now):
                self._done = None
                return 0.0
            self._due_at = next_due(snapshot, self._max_wait, self._keep_secs, settled=picture.settled)
            if picture.resting and self._due_at is not None:
                self._due_at = max(self._due_at, now + self._turns.secs_until_turn())
        self._done = picture
        return min(self._until_due(now), await self._tell(snapshot, picture))

    def _look(self, snapshot: ClusterSnapshot) -> Picture:
        listened = self._heartbeats.listened_for()
        silent = self._heartbeats.silent(snapshot)
        return Picture(
            epoch=self._leadership.fence().epoch,
            version=snapshot.version,
            reports=self._heartbeats.reports(snapshot),
            silent=silent,
            settled=listened >= self._settling_secs,
            resting=self._turns.resting(),
        )

    def _is_done(self, snapshot: ClusterSnapshot, now: Picture, server_now: float) -> bool:
        """Whether a round would find the same as the last one, which left nothing to do."""
        done = self._done
        return (
            done is not None
            and (done.epoch, done.silent, done.settled, done.resting)
            == (now.epoch, now.silent, now.settled, now.resting)
            and (self._due_at is None or server_now < self._due_at)
            and not self._concerns_jobs(snapshot, done.version)
            and done.reports == now.reports
        )

    async def _tell(self, snapshot: ClusterSnapshot, picture: Picture) -> float:
        """Continues the stories. Jobs go on without them, unless ZooKeeper is away: then a story
        must still be told before what it tells is lost."""
        try:
            wait = await self._stories.tell(snapshot, picture.reports, self._leadership.fence())
        except Exception as error:
            if kind_of(error) in CONCERNS_ALL:
                raise
            if self._untold.failed(kind_of(error)):
                log.warning("the stories of jobs are not written", error=str(error), exc_info=bug(error))
            return self._untold.pause_secs
        self._untold.succeeded()
        return wait

    async def _pause(self, snapshot: ClusterSnapshot, wait: float) -> None:
        changed = asyncio.ensure_future(self._concerned(snapshot))
        woken = asyncio.ensure_future(self._heartbeats.news.wait())
        try:
            await asyncio.wait({changed, woken}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            woken.cancel()
            self._heartbeats.news.clear()

    async def _concerned(self, seen: ClusterSnapshot) -> None:
        """Returns once a change concerns jobs."""
        led = self._leadership.is_leader()
        while True:
            now = await self._mirror.changed(seen.version)
            if now.epoch != seen.epoch or self._leadership.is_leader() != led:
                return
            if self._concerns_jobs(now, seen.version):
                return
            seen = now

    def _concerns_jobs(self, snapshot: ClusterSnapshot, since: int) -> bool:
        """Whether jobs may be judged differently than at an earlier version of the records.

        A bundle that no live job needs does not count.
        """
        news = snapshot.changes_since(since)
        if news is None or news.jobs or news.assignments or news.supervisors or news.any_bundle:
            return True
        self._index.follow(snapshot)
        return any(self._index.live_jobs_of(bundle) for bundle in news.bundles)

    def _until_due(self, server_now: float) -> float:
        settling = self._settling_secs - self._heartbeats.listened_for()
        look = min(LOOK_SECS, settling + 0.01) if settling > 0 else LOOK_SECS
        look = min(look, self._heartbeats.silence.due_in(time.monotonic()) + 0.01, self._turns.secs_until_turn() + 0.01)
        return look if self._due_at is None else min(look, max(0.0, self._due_at - server_now) + 0.01)

    async def _resync(self) -> None:
        await self._mirror.sync(5.0)
        self._in_doubt = False

    async def _round(self, snapshot: ClusterSnapshot, picture: Picture, now: float) -> bool:
        """Does one step. Returns whether it changed anything: then the next step looks at the
        result."""
        changed = await self._happen(snapshot, picture, now)
        silent, resting = picture.silent, picture.resting
        place = partial(assignment_ops, snapshot, silent=silent, resting=resting, settled=picture.settled)
        ops = [] if changed else self._turns.decide(paths.ASSIGNMENTS, place)
        if ops:
            log.info("workers placed", supervisors=len(ops))
            await self._place(ops)
        elif not changed:
            useless = cleanup_ops(snapshot, now, self._keep_secs)
            changed = any([await self._turns.attempt(op.path, partial(self._commit, [op])) for op in useless])
        if changed or ops or self._in_doubt:
            await self._resync()
        return changed or bool(ops)

    async def _happen(self, snapshot: ClusterSnapshot, picture: Picture, now: float) -> bool:
        """Commits what happened to jobs. Returns whether any event was committed."""
        events = happened(
            snapshot, picture.reports, server_now=now, max_wait_secs=self._max_wait,
            settled=picture.settled, decide=self._turns.decide,
        )  # fmt: skip
        if events:  # a worker that has ended loses its place, and then nobody reports its end
            await self._tell(snapshot, picture)
        turn = self._turns.attempt
        return any([await turn(paths.job(e.job), partial(self._apply, snapshot, e, picture)) for e in events])

    async def _apply(self, snapshot: ClusterSnapshot, event: Happened, picture: Picture) -> bool:
        await self._commit(ops_of(snapshot, event, silent=picture.silent, resting=picture.resting))
        log.info("job", job=event.job, happened=type(event.event).__name__)
        return True

    async def _place(self, ops: Sequence[Op]) -> None:
        """Writes assignments. One that is refused rests, so that the next round does the others."""
        try:
            await self._commit(ops)
        except Exception as error:
            self._turns.refused(ops, error)
            if isinstance(error, TransactionFailed):
                raise

    async def _commit(self, ops: Sequence[Op]) -> bool:
        whole: list[Op] = []
        for op in ops:
            if isinstance(op, Delete) and paths.parent(op.path) == paths.JOBS:
                whole += await self._stories.ending(JobId(paths.name(op.path)))
            whole.append(op)
        fence = self._leadership.fence()
        self._in_doubt |= bool(whole)
        for batch in batches(whole, BATCH):
            await fence.commit(batch)
        return True
