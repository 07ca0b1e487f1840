"""What the pages of the console read: records, the directory of swarms, and what supervisors say.

Always: a page costs one walk over what it shows at most. Which bundles are on their way is told by
an index that follows the records' changes.
Never: change anything.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Hashable, Iterable

import msgspec

from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.bundles import bundle_views
from torrentdist.master.console.console_views import DistributionLine
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.reads.answer_freshness import CATCH_UP_SECS
from torrentdist.master.reads.saved_records import Records
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.errors import NO_CLUSTER, TorrentdistError
from torrentdist.model.ids import BundleId, JobId, PeerId, SupervisorId
from torrentdist.model.records import BundleState, FailoverRecord
from torrentdist.model.wire.cluster_messages import ClusterView, SupervisorView
from torrentdist.model.wire.fleet_messages import FleetView, HostProgress
from torrentdist.model.wire.job_messages import WorkerReport

EXPIRING_SECS = 7 * 86400.0


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
        """Returns the time by ZooKeeper's clock, as far as it is known."""
        return self.records.server_now() or time.time()

    def cluster(self) -> ClusterView:
        """Returns the cluster with those supervisors only that are silent: a page that shows no
        others need not pay for them."""
        snapshot, now = self.snapshot(), time.time()
        silent = self._heartbeats.silent_secs(snapshot)
        late = [id_ for id_, secs in (silent or {}).items() if secs]
        few = dataclasses.replace(snapshot, supervisors={id_: snapshot.supervisors[id_] for id_ in late})
        view = bundle_views.cluster_view(few, self.leadership.leader_id(), now, silent, self._swarms.held)
        problem = NO_CLUSTER if self.records.lacks_cluster() else ""
        return msgspec.structs.replace(view, stale_secs=self.records.stale_secs(), problem=problem)

    def hosts(self, among: Iterable[SupervisorId]) -> list[SupervisorView]:
        """Returns the views of these supervisors, as far as they are registered."""
        snapshot = self.snapshot()
        silent = self._heartbeats.silent_secs(snapshot)
        return bundle_views.supervisor_list(snapshot, time.time(), silent, self._swarms.held, among)

    async def failovers(self, most: int) -> list[FailoverRecord] | None:
        """Returns the last failovers, the newest first; None: ZooKeeper does not answer."""
        if self.records.cut_off_secs() > CATCH_UP_SECS:
            return None
        try:
            async with asyncio.timeout(CATCH_UP_SECS):
                return await self.leadership.failovers(most)
        except (TimeoutError, TorrentdistError):
            return None

    def fleet(self, bundle: BundleId) -> FleetView:
        snapshot = self.snapshot()
        entry = bundle_views.entry_of(snapshot, bundle, *bundle_views.LISTED)
        self._index.follow(snapshot)
        digest, size = entry.record.digest, entry.record.size
        said = self._swarms.directory.entry
        hosts = [
            bundle_views.host_progress(snapshot, host, said(PeerId(host), digest), size)
            for host in self._index.told_to_keep(bundle)
        ]
        return FleetView(id=bundle, digest=digest, size=size, hosts=hosts)

    def problems(self, bundle: BundleId) -> dict[str, str]:
        """Returns the peers on which a bundle does not arrive, with their reasons."""
        digest = self.snapshot().bundles[bundle].record.digest
        return {str(peer): entry.problem for peer, entry in self._swarms.members(digest).items() if entry.problem}

    def progress(self, bundle: BundleId, host: SupervisorId) -> HostProgress | None:
        """Returns how far a bundle is on one host; None: the host is not told to keep it."""
        return next((found for found in self.fleet(bundle).hosts if found.supervisor == host), None)

    def lost(self) -> list[BundleId]:
        return sorted(id_ for id_, e in self.snapshot().bundles.items() if e.record.state is BundleState.LOST)

    def short_of_copies(self) -> dict[str, str]:
        """Returns the bundles with fewer holders than wanted, and how many they have."""
        snapshot, found = self.snapshot(), {}
        for id_, entry in sorted(snapshot.bundles.items()):
            if entry.record.state is BundleState.AVAILABLE:
                holders = len(snapshot.holders(id_))
                if holders < entry.record.min_replicas:
                    found[str(id_)] = f"{holders} of {entry.record.min_replicas} copies"
        return found

    def expiring(self) -> dict[str, str]:
        """Returns the hosts whose certificate has few days left, and how many."""
        now = self.now()
        return {
            id_: f"its certificate ends in {max(0.0, entry.record.expires_at - now) / 86400:.0f} days"
            for id_, entry in sorted(self.snapshot().hosts.items())
            if not entry.record.is_revoked and 0 < entry.record.expires_at < now + EXPIRING_SECS
        }

    def distributions(self) -> list[DistributionLine]:
        """Returns the bundles that some live host is told to keep and has not said that it has."""
        snapshot = self.snapshot()
        self._index.follow(snapshot)
        directory, found = self._swarms.directory, []
        for id_, entry in sorted(snapshot.bundles.items()):
            told = self._index.count_told(id_)
            digest = entry.record.digest
            if not told or directory.counts(digest).complete - len(snapshot.holders(id_)) == told:
                continue
            hosts = [host for host in self._index.told_to_keep(id_) if host in snapshot.supervisors]
            said = (directory.entry(PeerId(host), digest) for host in hosts)
            done = sum(entry is not None and entry.complete for entry in said)
            if done < len(hosts) and entry.record.state in bundle_views.LISTED:
                found.append(DistributionLine(bundle=id_, size=entry.record.size, hosts=len(hosts), done=done))
        return found

    def jobs_of(self, bundle: BundleId) -> list[JobId]:
        self._index.follow(self.snapshot())
        return self._index.live_jobs_of(bundle)

    def workers(self, host: SupervisorId) -> list[WorkerReport] | None:
        """Returns what a supervisor said of its workers; None: this master has not heard it."""
        body = self._heartbeats.recent().get(host)
        return None if body is None else body.workers
