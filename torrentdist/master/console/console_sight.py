"""What the pages of the console read: records, the directory of swarms, and what supervisors say.

Always: a page costs one walk over what it shows at most. What is shown comes from `seen`, the
records as the visitor may see them.
Never: change anything.
"""

import asyncio
import time
from collections.abc import Hashable, Iterable

import msgspec

from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.bundles import bundle_views
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.presence.attention import SILENT_SECS
from torrentdist.master.presence.attention_sight import AttentionSight
from torrentdist.master.reads.answer_freshness import CATCH_UP_SECS
from torrentdist.master.reads.time_left import with_time_left
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId, PeerId, SupervisorId
from torrentdist.model.records import FailoverRecord
from torrentdist.model.wire.cluster_messages import GoneView, SupervisorView
from torrentdist.model.wire.fleet_messages import FleetView, HostProgress
from torrentdist.model.wire.job_messages import WorkerReport
from torrentdist.security.authorization import Principal, reads_everything


class ConsoleSight:
    def __init__(
        self, attention: AttentionSight, leadership: Leadership, heartbeats: Heartbeats, swarms: Swarms
    ) -> None:
        self.attention = attention
        self.records = attention.records
        self.leadership = leadership
        self._heartbeats = heartbeats
        self._swarms = swarms
        self._index = RecordIndex()

    def snapshot(self) -> ClusterSnapshot:
        return self.records.snapshot()

    def state(self) -> Hashable:
        """Returns another value when a page of records and swarms may show something else."""
        return self.attention.records_state(), self._swarms.directory.revisions.said

    def states(self, seen: ClusterSnapshot) -> dict[SupervisorId, str]:
        """Returns the state of each registered host: silent, full, draining or up."""
        silent, full = self._heartbeats.silent_secs(seen) or {}, self._swarms.directory.conditions.full
        states = dict.fromkeys(seen.supervisors, "up")
        states |= {id_: "draining" for id_, a in seen.assignments.items() if a.record.draining and id_ in states}
        states |= {SupervisorId(peer): "full" for peer in full if SupervisorId(peer) in states}
        return states | {id_: "silent" for id_, secs in silent.items() if secs > SILENT_SECS}

    def hosts(self, among: Iterable[SupervisorId], sender: Principal) -> list[SupervisorView]:
        """Returns the views of these supervisors, as far as they are registered. Only who reads
        everything sees what keeps bundles from them, because that may name a bundle."""
        snapshot = self.snapshot()
        silent = self._heartbeats.silent_secs(snapshot)
        said = self._swarms.directory.conditions
        views = bundle_views.supervisor_list(snapshot, time.time(), silent, self._swarms.held, said, among)
        return [self._with_problem(view) for view in views] if reads_everything(sender) else views

    def _with_problem(self, view: SupervisorView) -> SupervisorView:
        held = self._swarms.held(PeerId(view.id))
        return view if held is None or not held.problem else msgspec.structs.replace(view, problem=held.problem)

    def gone(self, seen: ClusterSnapshot, role: str) -> list[GoneView]:
        return [view for view in self.attention.gone(seen) if view.role == role]

    async def failovers(self, most: int) -> list[FailoverRecord] | None:
        """Returns the last failovers, the newest first; None: ZooKeeper does not answer."""
        if self.records.cut_off_secs() > CATCH_UP_SECS:
            return None
        try:
            async with asyncio.timeout(CATCH_UP_SECS):
                return await self.leadership.failovers(most)
        except (TimeoutError, TorrentdistError):
            return None

    def fleet(self, seen: ClusterSnapshot, bundle: BundleId) -> FleetView:
        bundle_views.entry_of(seen, bundle, *bundle_views.LISTED)
        self._index.follow(self.snapshot())
        hosts = self.progress(seen, bundle, self._index.told_to_keep(bundle))
        fleet = bundle_views.with_later_waves(seen, bundle, hosts)
        return with_time_left(fleet, seen.distributions.get(bundle), self.attention.now())

    def progress(self, seen: ClusterSnapshot, bundle: BundleId, hosts: Iterable[SupervisorId]) -> list[HostProgress]:
        """Returns how far a bundle is on each of these hosts, told to keep it or not."""
        record, said = seen.bundles[bundle].record, self._swarms.directory.entry
        return [
            bundle_views.host_progress(seen, host, said(PeerId(host), record.digest), record.size) for host in hosts
        ]

    def jobs_of(self, seen: ClusterSnapshot, bundle: BundleId) -> list[JobId]:
        self._index.follow(self.snapshot())
        return [job for job in self._index.live_jobs_of(bundle) if job in seen.jobs]

    def workers(self, seen: ClusterSnapshot, host: SupervisorId) -> list[WorkerReport] | None:
        """Returns what a supervisor said of its workers; None: this master has not heard it."""
        body = self._heartbeats.recent().get(host)
        return None if body is None else [worker for worker in body.workers if worker.job in seen.jobs]
