"""The bundles that some live host should have and has not said that it has.

Always: an answer equals that of a walk over all bundles. What it costs depends on what changed in
the records and in the directory of swarms since the last one.
Never: hide what a reader may not see. attention_sight.py does.
"""

from collections.abc import Iterable, Mapping

from torrentdist.cluster.records.record_index import Follower, RecordIndex
from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot
from torrentdist.master.bundles.bundle_views import LISTED
from torrentdist.model.ids import BundleId, PeerId, SupervisorId
from torrentdist.model.wire.fleet_messages import DistributionLine
from torrentdist.swarm.directory.directory import SwarmDirectory

OpenBundle = tuple[DistributionLine, dict[str, str]]
"""How far a bundle is, and the hosts that do not get it with the reasons."""


class OpenBundles:
    def __init__(self, directory: SwarmDirectory) -> None:
        self._directory = directory
        self._follower = Follower()
        self._index = RecordIndex()
        self._hosts: frozenset[SupervisorId] = frozenset()
        """The hosts that were registered."""
        self._orders: frozenset[BundleId] = frozenset()
        self._states = 0
        """The revision of the directory that was followed."""
        self._open: dict[BundleId, OpenBundle] = {}

    def of(self, snapshot: ClusterSnapshot) -> Mapping[BundleId, OpenBundle]:
        for bundle in self._stale(snapshot):
            entry = snapshot.bundles.get(bundle)
            found = None if entry is None else self._look(snapshot, bundle, entry)
            if found is None:
                self._open.pop(bundle, None)
            else:
                self._open[bundle] = found
        return self._open

    def _stale(self, snapshot: ClusterSnapshot) -> Iterable[BundleId]:
        """Follows records and directory. Returns the bundles to look at."""
        news, revisions = self._follower.news(snapshot), self._directory.revisions
        digests, self._states = revisions.since(self._states), revisions.states
        hosts, orders = frozenset(snapshot.supervisors), frozenset(snapshot.distributions)
        moved, self._hosts = hosts ^ self._hosts, hosts
        ordered, self._orders = orders | self._orders, orders
        if news is None or digests is None:
            self._index.follow(snapshot)
            return {*self._open, *snapshot.bundles}
        before = {host: self._index.kept(host) for host in news.assignments}
        self._index.follow(snapshot)
        stale = {*news.bundles, *(ordered if news.policies else ())}
        for host, kept in before.items():
            stale |= kept ^ self._index.kept(host)
        for host in moved:
            stale |= self._index.kept(host)
        for digest in digests:
            stale.update(self._index.bundles_of(digest))
        return stale

    def _look(self, snapshot: ClusterSnapshot, bundle: BundleId, entry: BundleEntry) -> OpenBundle | None:
        """Returns how far a bundle is; None if nobody waits for it."""
        told, order = self._index.told(bundle), snapshot.distributions.get(bundle)
        waves = order.record.hosts if order is not None and not order.record.is_over else ()
        if not told and not waves:
            return None
        digest = entry.record.digest
        everywhere = self._directory.complete_on(digest, frozenset(map(PeerId, told)))
        if (everywhere and told.issuperset(waves)) or entry.record.state not in LISTED:
            return None
        hosts = [host for host in told if host in snapshot.supervisors]
        said = {host: self._directory.entry(PeerId(host), digest) for host in hosts}
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
