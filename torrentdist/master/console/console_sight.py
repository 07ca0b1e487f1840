"""What the pages of the console read: records, the directory of swarms, and what supervisors say.

Always: a page costs one walk over what it shows at most. Which bundles are on their way is told by
an index that follows the records' changes. What is shown comes from `seen`, the records as the
visitor may see them.
Never: change anything.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Hashable, Iterable

import msgspec

from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot
from torrentdist.master.bundles import bundle_views
from torrentdist.master.console.overview_views import DistributionLine, Troubles
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.reads.answer_freshness import CATCH_UP_SECS
from torrentdist.master.reads.saved_records import Records
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.errors import NO_CLUSTER, TorrentdistError
from torrentdist.model.ids import BundleId, JobId, PeerId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionState
from torrentdist.model.records import BundleState, FailoverRecord
from torrentdist.model.wire.cluster_messages import ClusterView, SupervisorView
from torrentdist.model.wire.fleet_messages import FleetView
from torrentdist.model.wire.job_messages import WorkerReport


class ConsoleSight:
    def __init__(self, records: Records, leadership: Leadership, heartbeats: Heartbeats, swarms: Swarms) -> None:
        self.records = records
        self.leadership = leadership
        self._heartbeats = heartbeats
        self._swarms = swarms
        self._index = RecordIndex()

    def snapshot(self) -> ClusterSnapshot:
        return self.records.snapshot()

    def state(self) -> Hashable:
        """Returns another value when a page of records and swarms may show something else."""
        return self._records_state(), self._swarms.directory.revisions.said

    def _records_state(self) -> Hashable:
        return self.snapshot().version, self.records.stale_secs() is None, self.records.lacks_cluster()

    def overview_state(self) -> Hashable:
        """The same for the overview, which tells for how long hosts have been silent, and of
        running distributions only how many hosts have the bundle."""
        silent = self._heartbeats.silent_secs(self.snapshot()) or {}
        late = tuple((id_, secs) for id_, secs in silent.items() if secs)
        return self._records_state(), self._swarms.directory.revisions.states, late

    def now(self) -> float:
        """Returns the time by ZooKeeper's clock; by ours while it is unknown."""
        return self.records.server_now() or time.time()

    def cluster(self, seen: ClusterSnapshot) -> ClusterView:
        """Returns the cluster with those supervisors only that are silent or full. The overview
        shows no others, and need not pay for them."""
        now = time.time()
        silent, full = self._heartbeats.silent_secs(seen), self._swarms.directory.full
        named = {id_ for id_, secs in (silent or {}).items() if secs} | {SupervisorId(peer) for peer in full}
        some = {id_: seen.supervisors[id_] for id_ in named & seen.supervisors.keys()}
        few = dataclasses.replace(seen, supervisors=some)
        view = bundle_views.cluster_view(few, self.leadership.leader_id(), now, silent, self._swarms.held, full)
        problem = NO_CLUSTER if self.records.lacks_cluster() else ""
        return msgspec.structs.replace(view, stale_secs=self.records.stale_secs(), problem=problem)

    def hosts(self, among: Iterable[SupervisorId]) -> list[SupervisorView]:
        """Returns the views of these supervisors, as far as they are registered."""
        snapshot = self.snapshot()
        silent = self._heartbeats.silent_secs(snapshot)
        full = self._swarms.directory.full
        return bundle_views.supervisor_list(snapshot, time.time(), silent, self._swarms.held, full, among)

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
        entry = bundle_views.entry_of(seen, bundle, *bundle_views.LISTED)
        self._index.follow(self.snapshot())
        digest, size = entry.record.digest, entry.record.size
        said = self._swarms.directory.entry
        hosts = [
            bundle_views.host_progress(seen, host, said(PeerId(host), digest), size)
            for host in self._index.told_to_keep(bundle)
        ]
        return bundle_views.with_later_waves(seen, bundle, hosts)

    def troubles(self, seen: ClusterSnapshot) -> Troubles:
        return Troubles(
            lost=sorted(id_ for id_, e in seen.bundles.items() if e.record.state is BundleState.LOST),
            short=_short_of_copies(seen),
            stopped=_stopped(seen),
            running=self.distributions(seen),
            expiring=bundle_views.expiring_hosts(seen, self.now()),
        )

    def distributions(self, seen: ClusterSnapshot) -> list[DistributionLine]:
        """Returns the bundles that some live host should have and has not said that it has."""
        self._index.follow(self.snapshot())
        lines = (self._line(seen, id_, entry) for id_, entry in sorted(seen.bundles.items()))
        return [line for line in lines if line is not None and line.done < line.hosts]

    def _line(self, snapshot: ClusterSnapshot, bundle: BundleId, entry: BundleEntry) -> DistributionLine | None:
        """Returns how far a bundle is; None if nobody waits for it."""
        told, order = self._index.told(bundle), snapshot.distributions.get(bundle)
        waves = order.record.hosts if order is not None and not order.record.is_over else ()
        directory, digest = self._swarms.directory, entry.record.digest
        everywhere = directory.complete_on(digest, frozenset(map(PeerId, told)))
        if (everywhere and told.issuperset(waves)) or entry.record.state not in bundle_views.LISTED:
            return None
        hosts = [host for host in told if host in snapshot.supervisors]
        said = {host: directory.entry(PeerId(host), digest) for host in hosts}
        stuck = {host: one.problem for host, one in said.items() if one is not None and one.problem}
        first = min(stuck, default=None)
        return DistributionLine(
            bundle=bundle,
            size=entry.record.size,
            hosts=len(hosts) + len(set(waves) - told),
            done=sum(one is not None and one.complete for one in said.values()),
            stuck=len(stuck),
            reason="" if first is None else f"{first}: {stuck[first]}",
        )

    def jobs_of(self, seen: ClusterSnapshot, bundle: BundleId) -> list[JobId]:
        self._index.follow(self.snapshot())
        return [job for job in self._index.live_jobs_of(bundle) if job in seen.jobs]

    def workers(self, seen: ClusterSnapshot, host: SupervisorId) -> list[WorkerReport] | None:
        """Returns what a supervisor said of its workers; None: this master has not heard it."""
        body = self._heartbeats.recent().get(host)
        return None if body is None else [worker for worker in body.workers if worker.job in seen.jobs]


def _short_of_copies(seen: ClusterSnapshot) -> dict[str, str]:
    """Returns the bundles with fewer holders than wanted, and how many they have."""
    found = {}
    for id_, entry in sorted(seen.bundles.items()):
        if entry.record.state is BundleState.AVAILABLE:
            holders = len(seen.holders(id_))
            if holders < entry.record.min_replicas:
                found[str(id_)] = f"{holders} of {entry.record.min_replicas} copies"
    return found


def _stopped(seen: ClusterSnapshot) -> dict[str, str]:
    """Returns the bundles whose distribution was stopped, and why."""
    return {
        str(id_): entry.record.reason
        for id_, entry in sorted(seen.distributions.items())
        if entry.record.state is DistributionState.STOPPED
    }
