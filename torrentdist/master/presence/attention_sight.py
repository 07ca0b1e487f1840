"""What this master knows of the whole cluster: its view, running distributions, and what needs
attention.

Always: an answer is made of `seen`, the records as its reader may see them. What a look costs
depends on what changed since the last one; only a reader of some bundles pays for a count of them.
Never: change anything.
"""

import time
from collections.abc import Hashable, Mapping

import msgspec

from torrentdist.cluster.records.record_index import PerBundle
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.http.api_calls import Broken, Request, ask
from torrentdist.http.connection_pool import Http
from torrentdist.master.bundles import bundle_views
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.jobs.job_views import failing_jobs
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.presence.attention import FILLS_SECS, Troubles, attention, unheard
from torrentdist.master.presence.open_bundles import OpenBundle, OpenBundles
from torrentdist.master.presence.presence_plan import gone, restarting
from torrentdist.master.reads.readable_records import readable
from torrentdist.master.reads.saved_records import Records
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.access.host_record import HostRecord
from torrentdist.model.errors import NO_CLUSTER, TorrentdistError
from torrentdist.model.ids import BundleId, MasterId, PeerId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionState
from torrentdist.model.records import BundleState
from torrentdist.model.wire.cluster_messages import AttentionView, BundleCounts, ClusterView, GoneView
from torrentdist.model.wire.fleet_messages import DistributionLine
from torrentdist.security.authorization import Principal

Copies = tuple[BundleState, bool]
"""A bundle's state, and whether it has too few copies."""
Ill = tuple[BundleState, str]
"""The state of a bundle that is lost or has too few copies, and how many it has."""
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
        self._open = OpenBundles(swarms.directory)
        self._copies: PerBundle[Copies] = PerBundle(_copies)
        self._ill: PerBundle[Ill] = PerBundle(_ill)

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
        """Returns the cluster with those supervisors only that are silent or full, or will be
        soon, or whose clock is wrong. Pages that show no others need not pay for them."""
        silent, said = self._heartbeats.silent_secs(seen), self._swarms.directory.conditions
        named = {id_ for id_, secs in (silent or {}).items() if secs}
        filling = (peer for peer, secs in said.fills_in.items() if secs <= FILLS_SECS)
        named |= {SupervisorId(peer) for peer in (*said.full, *said.clocks, *filling)}
        some = {id_: seen.supervisors[id_] for id_ in named & seen.supervisors.keys()}
        return self._view(seen, msgspec.structs.replace(seen, supervisors=some))

    def _view(self, seen: ClusterSnapshot, shown: ClusterSnapshot) -> ClusterView:
        silent, said = self._heartbeats.silent_secs(seen), self._swarms.directory.conditions
        self._copies.of(self.snapshot())
        counts = _counts(self._copies.tally) if seen is self.snapshot() else None
        view = bundle_views.cluster_view(
            shown, self.leadership.leader_id(), time.time(), silent, self._swarms.held, said, counts
        )
        view = msgspec.structs.replace(
            view,
            gone=self.gone(seen),
            stale_secs=self.records.stale_secs(),
            problem=NO_CLUSTER if self.records.lacks_cluster() else "",
        )
        return msgspec.structs.replace(view, attention=attention(view, self._troubles(seen), self.now()))

    async def overview(self, sender: Principal) -> ClusterView:
        """Returns the outline of what the sender may read. It names what needs attention as far as
        anybody knows: a standby asks the leader, which hears the hosts. If the leader does not
        answer, that is the first thing."""
        own = self.outline(readable(self.snapshot(), sender))
        return msgspec.structs.replace(own, attention=await self._known(own.attention, sender))

    async def _known(self, own: list[AttentionView], sender: Principal) -> list[AttentionView]:
        leader = self.leadership.leader_id()
        record = None if leader in (None, self.leadership.me) else self.snapshot().masters.get(leader)
        if record is None:
            return own
        try:
            wanted = Request("GET", PATH, params={READS: ",".join(sender.reads)}, timeout=ANSWER_SECS)
            return await ask(self._http, record.url, wanted, list[AttentionView])
        except (Broken, TorrentdistError) as error:
            of_last_release = isinstance(error, TorrentdistError) and error.code == "not_found"
            return own if of_last_release else [unheard(record.id, str(error)), *own]

    def _troubles(self, seen: ClusterSnapshot) -> Troubles:
        ill = {id_: found for id_, found in self._ill.of(self.snapshot()).items() if id_ in seen.bundles}
        workers = [report for body in self._heartbeats.recent().values() for report in body.workers]
        return Troubles(
            lost=[id_ for id_, (state, _) in ill.items() if state is BundleState.LOST],
            short={id_: copies for id_, (state, copies) in ill.items() if state is BundleState.AVAILABLE},
            stopped={
                str(id_): entry.record.reason
                for id_, entry in seen.distributions.items()
                if entry.record.state is DistributionState.STOPPED
            },
            stuck={line.bundle: stuck for line, stuck in self._running(seen) if stuck},
            expiring=self._expiring(seen),
            jobs=failing_jobs(seen, workers, self._heartbeats.restart_loops()),
            restarting=restarting(seen, self.now()),
            elections=self.leadership.elections.recent,
        )

    def _expiring(self, seen: ClusterSnapshot) -> list[HostRecord]:
        """Returns those whose certificate ends soon: what a daemon says of its own counts, and for
        the others what is recorded."""
        now, said = self.now(), self._swarms.directory.conditions.certificate_ends_at
        found = [record for record in bundle_views.expiring_hosts(seen, now) if PeerId(record.id) not in said]
        soon = [id_ for id_, ends_at in said.items() if ends_at < now + bundle_views.EXPIRING_SECS]
        masters = [
            HostRecord(id=id_, role="master", expires_at=said[id_]) for id_ in soon if MasterId(id_) in seen.masters
        ]
        here = [id_ for id_ in soon if SupervisorId(id_) in seen.supervisors]
        return [*found, *masters, *(HostRecord(id=id_, role="supervisor", expires_at=said[id_]) for id_ in here)]

    def distributions(self, seen: ClusterSnapshot) -> list[DistributionLine]:
        """Returns the bundles that some live host should have and has not said that it has."""
        return [line for line, _ in self._running(seen)]

    def _running(self, seen: ClusterSnapshot) -> list[OpenBundle]:
        """Returns these bundles, each with the hosts that do not get it and why."""
        return [one for id_, one in sorted(self._open.of(self.snapshot()).items()) if id_ in seen.bundles]


def _copies(snapshot: ClusterSnapshot, id_: BundleId) -> Copies:
    record = snapshot.bundles[id_].record
    is_short = record.state is BundleState.AVAILABLE and len(snapshot.holders(id_)) < record.min_replicas
    return record.state, is_short


def _ill(snapshot: ClusterSnapshot, id_: BundleId) -> Ill | None:
    record, (state, is_short) = snapshot.bundles[id_].record, _copies(snapshot, id_)
    copies = f"{len(snapshot.holders(id_))} of {record.min_replicas} copies"
    return (state, copies) if is_short or state is BundleState.LOST else None


def _counts(found: Mapping[Copies, int]) -> BundleCounts:
    available = found.get((BundleState.AVAILABLE, False), 0) + found.get((BundleState.AVAILABLE, True), 0)
    lost = found.get((BundleState.LOST, False), 0)
    return BundleCounts(
        total=available + lost,
        available=available,
        uploading=found.get((BundleState.UPLOADING, False), 0),
        lost=lost,
        under_replicated=found.get((BundleState.AVAILABLE, True), 0),
    )
