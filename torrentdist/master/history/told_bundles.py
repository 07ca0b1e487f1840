"""Tells which bundles hosts have been told to keep since the last look.

Always: the first look, and one after which everything may have changed, costs a walk over the
assignments. Any other costs as much as there are changes.
Never: call a bundle new that was told before this master began to look.
"""

from collections.abc import Mapping

from torrentdist.cluster.records.record_index import Follower
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.model.ids import BundleId, SupervisorId


class ToldBundles:
    def __init__(self) -> None:
        self._follower = Follower()
        self._told: dict[SupervisorId, frozenset[BundleId]] | None = None

    def is_told(self, host: SupervisorId, bundle: BundleId) -> bool:
        """Whether a host was told to keep a bundle, at the last look."""
        return bundle in (self._told or {}).get(host, frozenset())

    def news(self, snapshot: ClusterSnapshot) -> Mapping[BundleId, list[SupervisorId]]:
        """Returns the bundles that were told since the last look, each with the hosts."""
        changes = self._follower.news(snapshot)
        now = snapshot.assignments
        looked = {*now, *(self._told or ())} if changes is None else changes.assignments
        first, told = self._told is None, self._told if self._told is not None else {}
        found: dict[BundleId, list[SupervisorId]] = {}
        for host in sorted(looked):
            before = told.pop(host, frozenset())
            if host in now:
                told[host] = frozenset(now[host].record.bundles)
                for bundle in () if first else sorted(told[host] - before):
                    found.setdefault(bundle, []).append(host)
        self._told = told
        return found
