"""Jobs on a master: what users ask of them, what supervisors report, and, on the leader, the loop
that drives them.

Always holds: every change is a decision of jobs.py or job_duties.py, committed through the fence;
what supervisors report is soft state that a new leader hears again within a heartbeat, and judges
nobody by before it has.
Longer than most files: users' requests, reports and the loop share the jobs' state.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from torrentdist.bundle.job_files import file_problem, job_text
from torrentdist.cluster import paths
from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Delete, Op, TransactionFailed
from torrentdist.host.hand_outs import HandOuts
from torrentdist.log import get_logger
from torrentdist.master.bundles.bundle_views import not_found
from torrentdist.master.bundles.pruning import prune_ops, unused
from torrentdist.master.changes.answered_requests import Mutation, Requests
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.jobs.job_duties import (
    assignment_ops,
    cleanup_ops,
    drain_ops,
    happened,
    next_due,
    ops_of,
    placement,
    settling_secs,
)
from torrentdist.master.jobs.job_operations import event_ops, find_job, submit_ops
from torrentdist.master.jobs.job_validation import Validation
from torrentdist.master.jobs.job_views import Reports, job_list, job_view, of_the_places
from torrentdist.master.jobs.lifecycle import Event
from torrentdist.master.jobs.silence import Silence
from torrentdist.master.jobs.story_keeper import Stories
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_session import MasterSession
from torrentdist.master.reads.paging import Page
from torrentdist.master.reads.zookeeper_reachability import ZooKeeperReachability
from torrentdist.model import ids
from torrentdist.model.backoff import Retry
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId, SupervisorId
from torrentdist.model.jobs.job import FILE_NAME, JobSpec
from torrentdist.model.jobs.job_overrides import with_overrides
from torrentdist.model.records import BundleState
from torrentdist.model.wire.ha_views import SightView
from torrentdist.model.wire.job_messages import HeartbeatAnswer, HeartbeatBody, JobView, SubmitBody
from torrentdist.model.wire.prune_views import UnusedView

log = get_logger()

BATCH = 100
LOOK_SECS = 10.0
FIRST_PAUSE_SECS = 0.01
"""After a change that somebody else was faster with: it is decided anew."""
OWED_AFTER = 3
"""A heartbeat is owed after so many of their periods."""
FORGET_REPORTS_SECS = 60.0


class JobService:
    def __init__(
        self,
        session: MasterSession,
        changes: LeaderChanges,
        leadership: Leadership,
        reachability: ZooKeeperReachability,
        hand_outs: HandOuts,
        config: Config,
    ) -> None:
        self._changes = changes
        self._mirror = session.mirror
        self._leadership = leadership
        self._zookeeper = zookeeper = session.zookeeper
        self._reachability = reachability
        self._hand_outs = hand_outs
        self._settling_secs = settling_secs(config.zookeeper.session_timeout_secs)
        self._validation = Validation(config.jobs)
        self._keep_secs = config.jobs.keep_secs
        self._max_wait = config.replication.max_wait_secs
        self._heard: dict[SupervisorId, tuple[float, HeartbeatBody]] = {}
        self._index = RecordIndex()
        self._wake = asyncio.Event()
        self._stories = Stories(zookeeper)
        self._silence = Silence(config.jobs.silent_secs)
        self._submitting = Requests(zookeeper)
        self._overtaken = Retry(FIRST_PAUSE_SECS, 1.0)
        self._trouble = Retry(1.0, LOOK_SECS)
        self._in_doubt = False
        """Workers may have been placed otherwise than the mirror shows."""

    # what users ask

    async def submit(self, mutation: Mutation | None, body: SubmitBody) -> bytes:
        """A client that loses patience sends it again: a job is validated once all the same."""
        async with self._submitting.turn(mutation):
            return await self._changes.recall(mutation) or await self._submit(mutation, body)

    async def _submit(self, mutation: Mutation | None, body: SubmitBody) -> bytes:
        bundle = ids.bundle_id(body.bundle)
        content, parsed = await self._spec_of(bundle)
        spec = with_overrides(parsed, body.name, body.workers, body.conf)
        problem = await asyncio.to_thread(file_problem, content, spec)
        if problem is not None:
            raise TorrentdistError("job_invalid", origin=f"{bundle}/{FILE_NAME}", detail=": ".join(problem))
        await self._validation.check(spec, content)
        job = ids.job_id(f"{spec.name}-{secrets.token_hex(4)}")
        return await self._changes.make_alone(
            mutation,
            lambda s: submit_ops(s, job, bundle, spec, time.time(), activate=body.activate),
            lambda s: self.view(s, job),
        )

    async def _spec_of(self, bundle: BundleId) -> tuple[Path, JobSpec]:
        entry = self._mirror.snapshot.bundles.get(bundle)
        if entry is None or entry.record.state in (BundleState.REMOVED, BundleState.UPLOADING):
            raise not_found(bundle, entry)
        stored = await self._hand_outs.checked(entry.record.digest)
        if stored is None:
            raise TorrentdistError("not_ready", detail=f"bundle {bundle} is still on its way to this master")
        text = await asyncio.to_thread(job_text, stored.content, FILE_NAME)
        if text is None:
            raise TorrentdistError("job_file_missing", what=f"bundle {bundle}")
        return stored.content, self._validation.parse(text, f"{bundle}/{FILE_NAME}")

    async def happen(self, mutation: Mutation | None, wanted: str, event: Event) -> bytes:
        return await self._changes.make(mutation, lambda s: event_ops(s, wanted, event), lambda s: self.view(s, wanted))

    async def drain(self, mutation: Mutation | None, supervisor: SupervisorId, draining: bool) -> bytes:
        def decide(snapshot: ClusterSnapshot) -> list[Op]:
            if supervisor not in snapshot.supervisors and supervisor not in snapshot.assignments:
                raise TorrentdistError("not_found", what=f"supervisor {supervisor!r}")
            return [*drain_ops(snapshot, supervisor, draining)]

        return await self._changes.make(mutation, decide, lambda s: {"id": supervisor, "draining": draining})

    async def prune(self, mutation: Mutation | None, older_than: float, dry_run: bool) -> bytes:
        """Remove the bundles that nobody uses."""
        removed: dict[BundleId, int] = {}

        def decide(snapshot: ClusterSnapshot) -> Sequence[Op]:
            removed.update({e.record.id: e.record.size for e in unused(snapshot, self.server_now(), older_than)})
            return [] if dry_run else prune_ops(snapshot, self.server_now(), older_than)

        def view(snapshot: ClusterSnapshot) -> UnusedView:
            there = sum(e.record.state is not BundleState.REMOVED for e in snapshot.bundles.values())
            kept = there - len(removed) if dry_run else there
            return UnusedView(removed=sorted(removed), bytes=sum(removed.values()), kept=kept)

        return await self._changes.make_alone(mutation, decide, view, batch=BATCH)

    def server_now(self) -> float:
        """ZooKeeper's clock; deadlines are told by nothing else."""
        now = self._zookeeper.server_now()
        if now is None:
            raise TorrentdistError("not_ready", detail="ZooKeeper's clock is not known yet")
        return now

    def view(self, snapshot: ClusterSnapshot, wanted: str) -> JobView:
        entry, now = find_job(snapshot, wanted), self._zookeeper.server_now()
        return job_view(snapshot, entry, self._reports(snapshot), self._said(), now)

    async def told(self, snapshot: ClusterSnapshot, wanted: str) -> JobView:
        """With its story."""
        view = self.view(snapshot, wanted)
        return msgspec.structs.replace(
            view, events=await self._stories.events(view.id, leads=self._leadership.is_leader())
        )

    def views(self, snapshot: ClusterSnapshot, page: Page) -> list[JobView]:
        return job_list(snapshot, self._reports(snapshot), self._said(), self._zookeeper.server_now(), page)

    # what supervisors report

    def hear(self, body: HeartbeatBody) -> HeartbeatAnswer:
        self._leadership.fence()
        before = self._heard.get(body.supervisor)
        self._heard[body.supervisor] = (time.monotonic(), body)
        self._silence.heard(body.supervisor, time.monotonic())
        if before is None or before[1].workers != body.workers:
            self._wake.set()
        snapshot = self._mirror.snapshot
        self._index.follow(snapshot)
        peers: dict[JobId, dict[str, str]] = {report.job: {} for report in body.workers}
        for id_ in {id_ for job in peers for id_ in self._index.running(job)}:
            host = snapshot.supervisors.get(id_)
            for worker in snapshot.assignments[id_].record.workers:
                if worker.job in peers and host is not None:
                    peers[worker.job][str(worker.worker)] = host.host
        return HeartbeatAnswer(interval=self._silence.heartbeat_secs(len(snapshot.supervisors)), peers=peers)

    async def sight(self, supervisor: SupervisorId, within: float) -> SightView:
        """What a supervisor that sees no ZooKeeper has to know to let its workers run on."""
        sees = await self._reachability.sees(within)
        snapshot = self._mirror.snapshot
        masters = {master.id: master.url for master in snapshot.masters.values()}
        if self._in_doubt or not snapshot.present:
            return SightView(sees=sees, newest=None, masters=masters)
        entry = snapshot.assignments.get(supervisor)
        return SightView(sees=sees, newest=0 if entry is None else entry.record.generation, masters=masters)

    def silent_secs(self, snapshot: ClusterSnapshot) -> dict[SupervisorId, float] | None:
        """Returns how long each supervisor has been silent. None: only the leader hears them."""
        if not self._leadership.is_leader():
            return None
        now, listened = time.monotonic(), self._listened_for()
        heard = {id_: self._silence.secs(id_, now, listened) for id_ in snapshot.supervisors}
        owed = OWED_AFTER * self._silence.heartbeat_secs(len(snapshot.supervisors))
        return {id_: round(secs, 1) if secs > owed else 0.0 for id_, secs in heard.items()}

    def _reports(self, snapshot: ClusterSnapshot) -> Reports:
        return of_the_places({id_: body.workers for id_, body in self._said().items()}, placement(snapshot))

    def _said(self) -> dict[SupervisorId, HeartbeatBody]:
        """The last word of each supervisor that was heard lately."""
        recent = time.monotonic() - FORGET_REPORTS_SECS
        return {id_: body for id_, (at, body) in self._heard.items() if at >= recent}

    # the leader's loop

    async def run(self) -> None:
        while True:
            snapshot = self._mirror.snapshot
            wait = LOOK_SECS
            try:
                if self._in_doubt:
                    await self._resync()
                    wait = 0.0
                elif self._leadership.is_leader() and snapshot.present:
                    busy = await self._round(snapshot)
                    wait = 0.0 if busy else min(self._until_due(snapshot), await self._tell(snapshot))
                    self._overtaken.succeeded()
                    self._trouble.succeeded()
            except TransactionFailed as exc:
                log.debug("a job's record changed under the leader", why=str(exc))
                self._in_doubt = True
                self._overtaken.failed("changed")
                wait = self._overtaken.pause_secs
            except TorrentdistError as error:
                if self._trouble.failed(error.code):
                    log.info("jobs wait", error=error.message)
                wait = self._trouble.pause_secs
            await self._pause(snapshot, wait)

    async def _tell(self, snapshot: ClusterSnapshot) -> float:
        return await self._stories.tell(snapshot, self._reports(snapshot), self._leadership.fence())

    async def _pause(self, snapshot: ClusterSnapshot, wait: float) -> None:
        changed = asyncio.ensure_future(self._concerned(snapshot))
        woken = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({changed, woken}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            woken.cancel()
            self._wake.clear()

    async def _concerned(self, seen: ClusterSnapshot) -> None:
        """Return once a change concerns jobs: a bundle that none of them needs is nothing to look
        at them all for."""
        led = self._leadership.is_leader()
        while True:
            now = await self._mirror.changed(seen.version)
            self._index.follow(now)
            news = now.changes_since(seen.version)
            if news is None or now.epoch != seen.epoch or self._leadership.is_leader() != led:
                return
            if news.jobs or news.assignments or news.supervisors or news.any_bundle:
                return
            if any(self._index.live_jobs_of(bundle) for bundle in news.bundles):
                return
            seen = now

    def _until_due(self, snapshot: ClusterSnapshot) -> float:
        due = next_due(snapshot, self._zookeeper.server_now() or 0.0, self._max_wait)
        settling = self._settling_secs - self._listened_for()
        look = min(LOOK_SECS, settling + 0.01) if settling > 0 else LOOK_SECS
        look = min(look, self._silence.due_in(time.monotonic()) + 0.01)
        return look if due is None else min(look, due + 0.01)

    def _listened_for(self) -> float:
        """Before that, an absence says nothing."""
        return min(self._leadership.led_for(), self._reachability.seen_for())

    async def _resync(self) -> None:
        await self._mirror.sync(5.0)
        self._in_doubt = False

    async def _round(self, snapshot: ClusterSnapshot) -> bool:
        """One step; True if something was changed, so that the next step looks at what came of
        it."""
        now = self._zookeeper.server_now()
        if now is None:
            return False
        listened = self._listened_for()
        settled = listened >= self._settling_secs
        silent = self._silence.of(snapshot.supervisors, time.monotonic(), listened)
        events = happened(
            snapshot, self._reports(snapshot), server_now=now, max_wait_secs=self._max_wait, settled=settled
        )
        if events:  # a worker that has ended loses its place, and then nobody reports its end
            await self._tell(snapshot)
        for event in events:
            await self._commit(ops_of(snapshot, event, silent=silent))
            log.info("job", job=event.job, happened=type(event.event).__name__)
        ops = [] if events else assignment_ops(snapshot, silent=silent, settled=settled)
        if ops:
            log.info("workers placed", supervisors=len(ops))
        if not events and not ops:
            ops = cleanup_ops(snapshot, now, self._keep_secs)
        await self._commit(ops)
        if events or ops:
            await self._resync()
        return bool(events or ops)

    async def _commit(self, ops: Sequence[Op]) -> None:
        whole: list[Op] = []
        for op in ops:
            if isinstance(op, Delete) and paths.parent(op.path) == paths.JOBS:
                whole += await self._stories.ending(JobId(paths.name(op.path)))
            whole.append(op)
        fence = self._leadership.fence()
        self._in_doubt |= bool(whole)
        for begin in range(0, len(whole), BATCH):
            await fence.commit(whole[begin : begin + BATCH])
