"""What this master knows of the whole cluster: its view, running distributions, and what needs
attention.

Always: an answer is made of `seen`, the records as its reader may see them. A look costs one walk
over the bundles at most: an index that follows the records' changes tells which are on their way.
Never: change anything.
"""

import dataclasses
import time
from collections.abc import Hashable, Iterable, Iterator

import msgspec

from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot
from torrentdist.http.api_calls import Broken, Request, ask
from torrentdist.http.connection_pool import Http
from torrentdist.master.bundles import bundle_views
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.jobs.job_views import failing_jobs
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.presence.attention import Troubles, attention, unheard
from torrentdist.master.presence.presence_plan import gone
from torrentdist.master.reads.readable_records import readable
from torrentdist.master.reads.saved_records import Records
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.errors import NO_CLUSTER, TorrentdistError
from torrentdist.model.ids import BundleId, PeerId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionState
from torrentdist.model.records import BundleState
from torrentdist.model.wire.cluster_messages import AttentionView, ClusterView, GoneView
from torrentdist.model.wire.fleet_messages import DistributionLine
from torrentdist.security.principal import Principal

PATH = "/v1/attention"
READS = "reads"
"""The parameter with the patterns of the bundles that the answer may name."""
TURN_SECS = 5.0
"""How often a standby asks the leader for an open page."""
ANSWER_SECS = 1.0
"""How long a standby waits for what the leader knows."""


class AttentionSight:
    def __init__(
        self, records: Records, leadership: Leadership, heartbeats: Heartbeats, swarms: Swarms, http: Http
    ) -> None:
        self.records = records
        self.leadership = leadership
        self._heartbeats = heartbeats
        self._swarms = swarms
        self._http = http
        self._index = RecordIndex()

    def snapshot(self) -> ClusterSnapshot:
        return self.records.snapshot()

    def now(self) -> float:
        """Returns the time by ZooKeeper's clock; by ours while it is unknown."""
        return self.records.server_now() or time.time()

    def state(self) -> Hashable:
        """Returns another value when something else may need attention. A standby cannot know when
        the leader hears something else, and asks it every few seconds."""
        snapshot = self.snapshot()
        silent = self._heartbeats.silent_secs(snapshot)
        late = None if silent is None else tuple((id_, secs) for id_, secs in silent.items() if secs)
        turn = self.now() // TURN_SECS if late is None else self._heartbeats.news_count
        away = tuple(view.id for view in self.gone(snapshot))
        return self.records_state(), self._swarms.directory.revisions.states, late, away, turn

    def records_state(self) -> Hashable:
        return self.snapshot().version, self.records.stale_secs() is None, self.records.lacks_cluster()

    def gone(self, seen: ClusterSnapshot) -> list[GoneView]:
        return gone(seen, self.now())

    def cluster(self, seen: ClusterSnapshot) -> ClusterView:
        """Returns the whole cluster."""
        return self._view(seen, seen)

    def outline(self, seen: ClusterSnapshot) -> ClusterView:
        """Returns the cluster with those supervisors only that are silent or full. Pages that show
        no others need not pay for them."""
        silent, full = self._heartbeats.silent_secs(seen), self._swarms.directory.full
        named = {id_ for id_, secs in (silent or {}).items() if secs} | {SupervisorId(peer) for peer in full}
        some = {id_: seen.supervisors[id_] for id_ in named & seen.supervisors.keys()}
        return self._view(seen, dataclasses.replace(seen, supervisors=some))

    def _view(self, seen: ClusterSnapshot, shown: ClusterSnapshot) -> ClusterView:
        silent, full = self._heartbeats.silent_secs(seen), self._swarms.directory.full
        view = bundle_views.cluster_view(
            shown, self.leadership.leader_id(), time.time(), silent, self._swarms.held, full
        )
        view = msgspec.structs.replace(
            view,
            gone=self.gone(seen),
            stale_secs=self.records.stale_secs(),
            problem=NO_CLUSTER if self.records.lacks_cluster() else "",
        )
        return msgspec.structs.replace(view, attention=attention(view, self._troubles(seen), self.now()))

    async def attention(self, sender: Principal) -> list[AttentionView]:
        """Returns what needs attention as far as anybody knows and the sender may read: a standby
        asks the leader, which hears the hosts. If the leader does not answer, that is the first
        thing."""
        own = self.outline(readable(self.snapshot(), sender)).attention
        leader = self.leadership.leader_id()
        record = None if leader in (None, self.leadership.me) else self.snapshot().masters.get(leader)
        if record is None:
            return own
        try:
            wanted = Request("GET", PATH, params={READS: ",".join(sender.reads)}, timeout=ANSWER_SECS)
            return await ask(self._http, record.url, wanted, list[AttentionView])
        except (Broken, TorrentdistError) as error:
            return [unheard(record.id, str(error)), *own]

    def _troubles(self, seen: ClusterSnapshot) -> Troubles:
        bundles = sorted(seen.bundles.items())
        workers = [report for body in self._heartbeats.recent().values() for report in body.workers]
        return Troubles(
            lost=[id_ for id_, entry in bundles if entry.record.state is BundleState.LOST],
            short=dict(_short_of_copies(seen, bundles)),
            stopped={
                str(id_): entry.record.reason
                for id_, entry in seen.distributions.items()
                if entry.record.state is DistributionState.STOPPED
            },
            stuck={line.bundle: stuck for line, stuck in self._running(seen) if stuck},
            expiring=bundle_views.expiring_hosts(seen, self.now()),
            jobs=failing_jobs(seen, workers, self._heartbeats.restart_loops()),
        )

    def distributions(self, seen: ClusterSnapshot) -> list[DistributionLine]:
        """Returns the bundles that some live host should have and has not said that it has."""
        return [line for line, _ in self._running(seen)]

    def _running(self, seen: ClusterSnapshot) -> list[tuple[DistributionLine, dict[str, str]]]:
        """Returns these bundles, each with the hosts that do not get it and why."""
        self._index.follow(self.snapshot())
        found = (self._line(seen, id_, entry) for id_, entry in sorted(seen.bundles.items()))
        return [one for one in found if one is not None]

    def _line(
        self, snapshot: ClusterSnapshot, bundle: BundleId, entry: BundleEntry
    ) -> tuple[DistributionLine, dict[str, str]] | None:
        """Returns how far a bundle is; None if nobody waits for it."""
        told, order = self._index.told(bundle), snapshot.distributions.get(bundle)
        waves = order.record.hosts if order is not None and not order.record.is_over else ()
        directory, digest = self._swarms.directory, entry.record.digest
        everywhere = directory.complete_on(digest, frozenset(map(PeerId, told)))
        if (everywhere and told.issuperset(waves)) or entry.record.state not in bundle_views.LISTED:
            return None
        hosts = [host for host in told if host in snapshot.supervisors]
        said = {host: directory.entry(PeerId(host), digest) for host in hosts}
        stuck = {str(host): one.problem for host, one in said.items() if one is not None and one.problem}
        first, later = min(stuck, default=None), len(set(waves) - told)
        done = sum(one is not None and one.complete for one in said.values())
        if done == len(hosts) and not later:
            return None
        line = DistributionLine(
            bundle=bundle,
            size=entry.record.size,
            hosts=len(told) + later,
            done=done,
            stuck=len(stuck),
            reason="" if first is None else f"{first}: {stuck[first]}",
        )
        return line, stuck


def _short_of_copies(
    snapshot: ClusterSnapshot, bundles: Iterable[tuple[BundleId, BundleEntry]]
) -> Iterator[tuple[str, str]]:
    for id_, entry in bundles:
        if entry.record.state is BundleState.AVAILABLE:
            holders = len(snapshot.holders(id_))
            if holders < entry.record.min_replicas:
                yield str(id_), f"{holders} of {entry.record.min_replicas} copies"
