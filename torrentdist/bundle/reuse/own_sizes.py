"""Knows how many bytes on disk belong to each published bundle alone. The blocks that it shares
with other versions do not count.

Always: where blocks cannot be shared, files may still be linked. A bundle that was not measured yet
counts in full. A bundle is measured once, and again only when the caller says that it may share
other blocks now.
Never: be asked on an event loop to measure: only `measure` touches the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from torrentdist.bundle.files.shared_blocks import can_clone, own_bytes
from torrentdist.bundle.store.store import Store
from torrentdist.model.ids import Digest


class OwnSizes:
    """Several threads may share it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = threading.Lock()
        self._can_clone: bool | None = None
        self._known: Mapping[Digest, int] = {}

    def of(self, digest: Digest, size: int) -> int:
        """Returns the own bytes of a bundle of this size, as they were measured last."""
        return min(size, self._known.get(digest, size))

    def measure(self, stale: Collection[Digest]) -> Mapping[Digest, int]:
        """Measures the bundles that are new, and those of `stale` that are here. Returns the own
        bytes of all bundles."""
        with self._turn:
            if self._can_clone is None:
                self._can_clone = can_clone(self._store.data_dir / "transit")
            known = {
                digest: own
                for digest in self._store.published_digests()
                if digest not in stale and (own := self._known.get(digest)) is not None
            }
            for digest in self._store.published_digests() - known.keys():
                home = self._store.object_dir(digest)
                known[digest] = sum(own_bytes(home / part, clones=self._can_clone) for part in ("content", "packs"))
            self._known = known
            return self._known
