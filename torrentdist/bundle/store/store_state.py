"""The state of a running store in memory: what is published, what is arriving, and what is being
changed.

Always: only one thread at a time changes a digest. Room is counted and claimed in one step, so that
two threads never get the same room.
Never: do I/O. A query never waits for a disk.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from msgspec.structs import replace

from torrentdist.bundle.store import retention
from torrentdist.bundle.store.retention import Claims, KeepReason
from torrentdist.bundle.store.store_values import RoomNeeded, Shortage, StoredBundle, StoreUsage
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest


class StoreState:
    def __init__(self, *, limit_bytes: int, reserve_bytes: int = 0, as_bytes_come: bool = False) -> None:
        """`as_bytes_come`: an arriving bundle keeps only as much room as has come of it, so that
        what somebody has declared and does not send keeps none."""
        self._as_bytes_come = as_bytes_come
        self._limit = limit_bytes
        self._reserve = reserve_bytes
        self._free = 0
        self._changed = threading.Condition()
        self._closing = False
        self._busy: set[Digest] = set()
        self._published: dict[Digest, StoredBundle] = {}
        self._digests: frozenset[Digest] | None = None
        """The keys of `_published`; None if they have changed since the last query."""
        self._arriving: dict[Digest, int] = {}
        self._packs: dict[Digest, int] = {}
        """Bytes of the packs of arriving bundles, which come on top."""

    # queries

    def published(self) -> dict[Digest, StoredBundle]:
        with self._changed:
            return dict(self._published)

    def published_digests(self) -> frozenset[Digest]:
        """Returns the same object until a bundle is published or unpublished."""
        with self._changed:
            if self._digests is None:
                self._digests = frozenset(self._published)
            return self._digests

    def get(self, digest: Digest) -> StoredBundle | None:
        with self._changed:
            return self._published.get(digest)

    def arriving(self) -> dict[Digest, int]:
        with self._changed:
            return dict(self._arriving)

    def usage(self) -> StoreUsage:
        with self._changed:
            return StoreUsage(
                published=len(self._published),
                published_bytes=sum(stored.size for stored in self._published.values()),
                arriving=len(self._arriving),
                arriving_bytes=sum(self._arriving.values()),
                limit_bytes=self._limit,
                reserve_bytes=self._reserve,
                free_bytes=self._free,
            )

    def shortage(self, room: RoomNeeded, free: int, written: Mapping[Digest, int] | None) -> Shortage:
        """Returns how many bytes are missing to store a bundle.

        `free` is the number of bytes free on the disk. `written`: the bytes on the disk of each
        arriving bundle; None: not measured, and each counts with its full size and its packs.
        """
        with self._changed:
            have = {digest: 0 if written is None else written.get(digest, 0) for digest in self._arriving}
            rest = {digest: self._to_come(digest, have[digest], written) for digest in self._arriving}
            kept = sum(min(total, have[digest] + rest[digest]) for digest, total in self._arriving.items())
            held = kept + sum(stored.size for stored in self._published.values())
        by_limit = held + room.size - self._limit if self._limit else 0
        return Shortage(on_disk=room.on_disk + sum(rest.values()) - free, by_limit=by_limit)

    def _to_come(self, digest: Digest, have: int, written: Mapping[Digest, int] | None) -> int:
        """Returns the room that is kept for the rest of an arriving bundle and its packs."""
        left = max(0, self._arriving[digest] + self._packs[digest] - have)
        return min(left, have) if self._as_bytes_come and written is not None else left

    # changes

    def now_free(self, free_bytes: int) -> None:
        """Records how many bytes are free on the disk."""
        with self._changed:
            self._free = free_bytes

    def now_published(self, stored: StoredBundle) -> None:
        with self._changed:
            self._no_longer_arriving(stored.digest)
            self._published[stored.digest] = stored
            self._digests = None

    def now_arriving(self, digest: Digest, size: int, packs: int = 0) -> None:
        with self._changed:
            self._unpublish(digest)
            self._arriving[digest], self._packs[digest] = size, packs

    def now_unpublished(self, digest: Digest) -> None:
        with self._changed:
            self._unpublish(digest)

    def now_gone(self, digest: Digest) -> None:
        with self._changed:
            self._unpublish(digest)
            self._no_longer_arriving(digest)

    def _no_longer_arriving(self, digest: Digest) -> None:
        self._arriving.pop(digest, None)
        self._packs.pop(digest, None)

    def _unpublish(self, digest: Digest) -> None:
        if self._published.pop(digest, None) is not None:
            self._digests = None

    def now_used(self, digest: Digest, at: float) -> StoredBundle | None:
        """Records a use of the bundle. Returns the bundle as it was before."""
        with self._changed:
            stored = self._published.get(digest)
            if stored is not None:
                self._published[digest] = replace(stored, used_at=at)
            return stored

    def now_pinned(self, pins: frozenset[Digest]) -> None:
        with self._changed:
            for digest, stored in self._published.items():
                if stored.pinned != (digest in pins):
                    self._published[digest] = replace(stored, pinned=digest in pins)

    # exclusion

    @contextmanager
    def alone(self, digest: Digest) -> Iterator[None]:
        """Keeps other threads from changing this digest."""
        with self._changed:
            self._changed.wait_for(lambda: digest not in self._busy)
            self._seize([digest])
        try:
            yield
        finally:
            self.let_go([digest])

    @contextmanager
    def if_free(self, digest: Digest) -> Iterator[bool]:
        """Like `alone`, without waiting: yields whether no other thread changes this digest."""
        with self._changed:
            is_free = digest not in self._busy
            if is_free:
                self._seize([digest])
        try:
            yield is_free
        finally:
            if is_free:
                self.let_go([digest])

    def let_go(self, digests: Iterable[Digest]) -> None:
        with self._changed:
            self._busy.difference_update(digests)
            self._changed.notify_all()

    def reserve(
        self,
        digest: Digest,
        room: RoomNeeded,
        *,
        free: int,
        written: Mapping[Digest, int] | None,
        own: Mapping[Digest, int],
        claims: Claims,
    ) -> list[Digest] | None:
        """Counts `digest` as arriving, and seizes the bundles that have to be removed for it.

        The caller removes the seized bundles and releases them. Returns None and changes nothing if
        there cannot be enough room. `own` tells what the removal of a bundle frees on the disk, if
        that is less than its size.
        """
        with self._changed:
            lack = self.shortage(room, free, written)
            freed = own if lack.on_disk >= lack.by_limit else {}
            victims = retention.plan(self._entries(claims, freed), need=lack.most) if lack.most > 0 else []
            if victims is not None:
                self._seize(victims)
                self._arriving[digest], self._packs[digest] = room.size, room.packs
            return victims

    def plan_prune(self, *, older_than: float, now: float, claims: Claims) -> list[StoredBundle]:
        with self._changed:
            doomed = retention.plan_prune(self._entries(claims), older_than=older_than, now=now)
            return [self._published[digest] for digest in doomed]

    def reasons_to_stay(self, *, older_than: float, now: float, claims: Claims) -> dict[Digest, frozenset[KeepReason]]:
        with self._changed:
            return retention.reasons_to_stay(self._entries(claims), older_than=older_than, now=now)

    def plan_to_low(
        self, marks: retention.StoreMarks, *, taken: int, own: Mapping[Digest, int], now: float, claims: Claims
    ) -> list[StoredBundle]:
        # A bundle that shares all its blocks goes last: the others that share them may go with it.
        freed = {digest: max(1, size) for digest, size in own.items()}
        with self._changed:
            used = sum(self._arriving.values()) + taken
            if not retention.is_above(marks, used):
                return []  # Claims cost something.
            doomed = retention.plan_to_low(self._entries(claims, freed), used=used, marks=marks, now=now)
            return [self._published[digest] for digest in doomed]

    def seize_prunable(self, *, older_than: float, now: float, claims: Claims) -> list[StoredBundle]:
        with self._changed:
            doomed = self.plan_prune(older_than=older_than, now=now, claims=claims)
            self._seize([stored.digest for stored in doomed])
            return doomed

    def wind_down(self, timeout: float) -> bool:
        """Refuses new work. Returns whether all work ended within `timeout` seconds."""
        with self._changed:
            self._closing = True
            return self._changed.wait_for(lambda: not self._busy, timeout)

    def _seize(self, digests: Iterable[Digest]) -> None:
        if self._closing:
            raise TorrentdistError("closing", what="the store")
        self._busy.update(digests)

    def _entries(self, claims: Claims, own: Mapping[Digest, int] = MappingProxyType({})) -> list[retention.Entry]:
        """Returns the entries for retention. A bundle that a thread is changing counts as in
        use."""
        return [
            retention.Entry(
                stored.digest,
                own.get(stored.digest, stored.size),
                stored.used_at,
                self._claims_on(stored, claims),
            )
            for stored in self._published.values()
        ]

    def _claims_on(self, stored: StoredBundle, claims: Claims) -> frozenset[KeepReason]:
        own = {KeepReason.PINNED} if stored.pinned else set()
        if stored.digest in self._busy:
            own.add(KeepReason.IN_USE)
        return frozenset(own).union(claims(stored.digest))
