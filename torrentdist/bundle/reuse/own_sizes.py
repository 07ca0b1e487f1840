"""Knows how many bytes on disk belong to each published bundle alone, and how many all of them take
together: a block that versions share counts once.

Always: where blocks cannot be shared, files may still be linked. A bundle that was not measured yet
counts in full. A bundle is measured once, and again only when the caller says that it may share
other blocks now.
Never: be asked on an event loop to measure: only `measure` touches the disk.
"""

import threading
from collections.abc import Collection, Mapping

from torrentdist.bundle.files.shared_blocks import DiskUse, can_clone, disk_use, total_bytes
from torrentdist.bundle.store.store import Store
from torrentdist.model.ids import Digest


class OwnSizes:
    """Several threads may share it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = threading.Lock()
        self._can_clone: bool | None = None
        self._known: Mapping[Digest, DiskUse] = {}

    def of(self, digest: Digest, size: int) -> int:
        """Returns the own bytes of a bundle of this size, as they were measured last."""
        use = self._known.get(digest)
        return size if use is None else min(size, use.own)

    def own(self) -> Mapping[Digest, int]:
        """Returns the own bytes of the bundles that were measured."""
        return {digest: use.own for digest, use in self._known.items()}

    def taken(self) -> int:
        """Returns the bytes that all published bundles take together, at most the sum of their
        sizes."""
        known, there = self._known, self._store.published()
        unmeasured = sum(stored.size for digest, stored in there.items() if digest not in known)
        measured = total_bytes(use for digest, use in known.items() if digest in there)
        return min(unmeasured + measured, sum(stored.size for stored in there.values()))

    def can_clone(self) -> bool:
        """Whether files in this store can share blocks."""
        with self._turn:
            if self._can_clone is None:
                self._can_clone = can_clone(self._store.data_dir / "transit")
            return self._can_clone

    def measure(self, stale: Collection[Digest]) -> Mapping[Digest, int]:
        """Measures the bundles that are new, and those of `stale` that are here. Returns the own
        bytes of all bundles."""
        clones = self.can_clone()
        with self._turn:
            there = self._store.published_digests()
            known = {d: use for d, use in self._known.items() if d in there and d not in stale}
            for digest in there - known.keys():
                home = self._store.object_dir(digest)
                known[digest] = disk_use(home / "content", home / "packs", clones=clones)
            self._known = known
            return self.own()
