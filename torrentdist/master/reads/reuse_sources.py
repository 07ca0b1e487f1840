"""Decides from which bundles of this master parts are taken for another one: from those that its
uploader may read.

Always: the bytes that an upload moves, and the time that it takes, tell nothing of other bundles.
"""

from collections.abc import Callable, Iterable, Sequence

from torrentdist.host.host_store import NOBODY, HostStore
from torrentdist.master.reads.saved_records import Records
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleState
from torrentdist.security.authorization import ALL_BUNDLES, matches_one


class ReuseSources:
    """`names` returns the ids of all bundles with some content."""

    def __init__(self, store: HostStore, records: Records, names: Callable[[Digest], Iterable[BundleId]]) -> None:
        self._store = store
        self._records = records
        self._names = names

    def of_bundle(self, bundle: BundleId) -> Sequence[Digest] | None:
        """Returns the bundles that may give parts to this one, the newest first. None: all may."""
        entry = self._records.snapshot().bundles.get(bundle)
        return () if entry is None else self.readable_by(entry.record.sources)

    def waiting_for(self, digest: Digest) -> str:
        """Returns the uploader that waits until this content is here."""
        bundles = self._records.snapshot().bundles
        records = (bundles[id_].record for id_ in self._names(digest) if id_ in bundles)
        return next((record.owner for record in records if record.state is BundleState.UPLOADING), NOBODY)

    def readable_by(self, patterns: tuple[str, ...]) -> Sequence[Digest] | None:
        """Returns the bundles that a reader with these patterns may read, the newest first. None:
        all."""
        if ALL_BUNDLES in patterns:
            return None
        newest = sorted(self._store.published().values(), key=lambda stored: -stored.published_at)
        return [stored.digest for stored in newest if self._is_readable(stored.digest, patterns)]

    def _is_readable(self, digest: Digest, patterns: tuple[str, ...]) -> bool:
        bundles = self._records.snapshot().bundles
        entries = (bundles.get(id_) for id_ in self._names(digest) if matches_one(patterns, id_))
        return any(entry is not None and entry.record.state is not BundleState.REMOVED for entry in entries)
