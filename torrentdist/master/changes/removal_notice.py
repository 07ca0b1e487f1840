"""The leader's notice of removed bundles: one znode that every supervisor watches.

Always: it names the newest tombstones, so a new leader writes the same as the one before. Its cost
does not grow with the number of bundles.
"""

import heapq
from collections.abc import Collection
from typing import Final

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.records.snapshot import Changes, ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Set
from torrentdist.model.ids import BundleId
from torrentdist.model.records import encode
from torrentdist.model.removals import RemovalsRecord, removal_mark

NOTICE_SCHEMA: Final = 2
"""The schema of clusters all of whose daemons know the notice."""
MOST_MARKS: Final = 100
"""A host that misses more removals at once asks the masters about each of its bundles."""


class RemovalNotice:
    def __init__(self) -> None:
        self._newest: list[BundleId] = []
        self._written: tuple[int, tuple[str, ...]] | None = None
        """The epoch and the marks of the last write."""

    async def tell(
        self, snapshot: ClusterSnapshot, news: Changes | None, tombstones: Collection[BundleId], fence: Fence
    ) -> None:
        """Writes the notice, if it has changed."""
        among = tombstones
        if news is not None and self._written is not None:
            if self._written[0] == fence.epoch and not self._concerned(news, tombstones):
                return
            among = {bundle for bundle in (*self._newest, *news.bundles) if bundle in tombstones}
        age = lambda bundle: (snapshot.bundles[bundle].mtime, bundle)  # noqa: E731
        self._newest = heapq.nlargest(MOST_MARKS, among, key=age)
        marks = tuple(removal_mark(bundle, snapshot.bundles[bundle].record.digest) for bundle in self._newest)
        if self._written != (fence.epoch, marks):
            self._written = None  # a write that fails is made again, whatever the news are then
            await fence.commit([Set(paths.REMOVALS, encode(RemovalsRecord(marks=marks)))])
            self._written = fence.epoch, marks

    def _concerned(self, news: Changes, tombstones: Collection[BundleId]) -> bool:
        """Tells whether a bundle became a tombstone, or a named one may no longer be one."""
        return any(bundle in tombstones for bundle in news.bundles) or not news.bundles.isdisjoint(self._newest)
