"""A host's bundles on disk. Each is stored once, by digest.

Always: every published bundle was verified, is durable and read-only. A crash at any point leaves a
store that `open` can repair. There is room for a bundle before its first byte arrives, and it is
kept for the bundle: all of it, or as bytes come. A claimed bundle is not evicted.
Never: fetch or hash arriving content, since the caller of `publish` has verified it. Never use it
on an event loop, which gets a `StoreView` instead.
Longer than most files: one class is the only writer of a store, and its methods must see each
other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from torrentdist.bundle.content_check import Damage, finish_content, protect_packs
from torrentdist.bundle.files.durability import disk_failures, free_bytes
from torrentdist.bundle.hashing import Progress
from torrentdist.bundle.metafile import Metafile, parse_metafile
from torrentdist.bundle.packs.pack_files import write_packs
from torrentdist.bundle.store.catalog import Catalog
from torrentdist.bundle.store.object_index import Head, mark_files, marked_files
from torrentdist.bundle.store.objects import Objects
from torrentdist.bundle.store.retention import Claims, KeepReason, StoreMarks, claim_everything
from torrentdist.bundle.store.store_checks import StoreChecks
from torrentdist.bundle.store.store_lock import LOCK_WAIT_SECS, StoreLock, identify
from torrentdist.bundle.store.store_state import StoreState
from torrentdist.bundle.store.store_values import Arrival, Pruned, RoomNeeded, StoredBundle, StoreUsage
from torrentdist.bundle.store.store_view import StoreMemory, StoreView
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest

__all__ = [
    "Arrival",
    "Claims",
    "KeepReason",
    "Pruned",
    "Store",
    "StoreUsage",
    "StoreView",
    "StoredBundle",
    "claim_everything",
    "held_by_nobody",
]

MakeRoom = Callable[[int, StoreUsage], None]
"""Frees room for a bundle of the given size, given the room in use.

It removes data that can be recreated, such as archives."""

OwnBytes = Callable[[], Mapping[Digest, int]]
"""Returns how many bytes on disk belong to each published bundle alone. Nothing where bundles
cannot share blocks."""

USE_GRANULARITY_SECS = 60.0
"""Shortest interval between two records of a bundle's use, which only eviction needs."""


def keep_everything(_: int, __: StoreUsage) -> None:
    """Does nothing: a caller without recreatable data uses it as MakeRoom."""


def nothing_shared() -> Mapping[Digest, int]:
    """Returns nothing: a caller that never shares blocks uses it as OwnBytes."""
    return {}


def held_by_nobody() -> bool:
    """Returns no: a caller that deletes a bundle whoever uses it gives it as `is_held`."""
    return False


class Store(StoreView):
    """A host's store: created by `Store.open`, and called only by threads.

    Calls about one digest take turns; others run in parallel.
    """

    def __init__(
        self,
        data_dir: Path,
        lock: StoreLock,
        *,
        limit_bytes: int,
        reserve_bytes: int,
        as_bytes_come: bool,
        clock: Callable[[], float],
    ) -> None:
        self._lock = lock
        self._reserve = reserve_bytes
        self._clock = clock
        identity = identify(data_dir)
        self._catalog = Catalog.open(data_dir / "catalog.json")
        self._objects = Objects(data_dir)
        self._state = StoreState(limit_bytes=limit_bytes, reserve_bytes=reserve_bytes, as_bytes_come=as_bytes_come)
        super().__init__(StoreMemory(data_dir, identity, self._state, self._catalog))
        self._checks = StoreChecks(self._objects, self._state, self.metafile)
        self._use_recorded: dict[Digest, float] = {}
        self._begun: dict[Digest, Metafile] = {}
        self.likely_sharers: Callable[[Digest], Iterable[Digest]] = lambda digest: ()
        """Returns the bundles that may share files with this one."""
        self.on_deleted: Callable[[Digest], None] = lambda digest: None
        """Called in any thread after a published bundle was deleted, for whatever reason."""
        with disk_failures(data_dir):
            self._recover()
        self.measure()

    @classmethod
    def open(
        cls,
        data_dir: Path,
        *,
        limit_bytes: int = 0,
        reserve_bytes: int = 0,
        as_bytes_come: bool = False,
        lock_wait: float = LOCK_WAIT_SECS,
        clock: Callable[[], float] = time.time,
    ) -> Store:
        """Opens the store in `data_dir`, or creates one. Raises `store_locked` if another process
        has it. `as_bytes_come`: see StoreState."""
        with disk_failures(data_dir):
            data_dir.mkdir(parents=True, exist_ok=True)
            data_dir = data_dir.resolve()
        lock = StoreLock.take(data_dir, wait=lock_wait)
        try:
            limits = {"limit_bytes": limit_bytes, "reserve_bytes": reserve_bytes}
            return cls(data_dir, lock, **limits, as_bytes_come=as_bytes_come, clock=clock)
        except BaseException:
            lock.release()
            raise

    def close(self, *, timeout: float = 10.0) -> None:
        """Refuses new work, waits for running work and releases the lock.

        Work that still runs after `timeout` seconds keeps the lock until the process ends, so that
        no other process starts while it writes.
        """
        idle = self._state.wind_down(timeout)
        self._catalog.close()
        for stored in self._state.published().values():
            if stored.used_at > self._use_recorded.get(stored.digest, 0.0):
                self._record_use(stored.digest, stored.used_at)
        if idle:
            self._lock.release()

    # queries

    def arrival(self, digest: Digest) -> Arrival | None:
        """Returns an arriving bundle, and why it was set aside if it was. None if it is not
        arriving."""
        size = self._state.arriving().get(digest)
        if size is None:
            return None
        with disk_failures(self.data_dir):
            return Arrival(digest, size, self._objects.set_aside_reason(digest))

    def measure(self) -> StoreUsage:
        """Measures the disk, and returns the room in use and free now. Before that, it deletes what
        a failing disk has left of removed bundles."""
        self._objects.delete_left()
        with disk_failures(self.data_dir):
            self._state.now_free(free_bytes(self.data_dir))
        return self.usage()

    def raw_metafile(self, digest: Digest) -> bytes | None:
        """Returns the bytes of the metafile of a published or arriving bundle, as given to
        `begin`."""
        with disk_failures(self.data_dir):
            return self._objects.read_metafile(digest)

    def metafile(self, digest: Digest) -> Metafile | None:
        """Returns the parsed metafile. Raises `corrupt` if the file on disk is damaged or belongs
        to another bundle."""
        raw = self.raw_metafile(digest)
        if raw is None:
            return None
        path = str(self._objects.metafile(digest))
        try:
            meta = parse_metafile(raw)
        except TorrentdistError as exc:
            raise TorrentdistError("corrupt", path=path, detail=exc.message) from exc
        if meta.digest != digest:
            raise TorrentdistError("corrupt", path=path, detail=f"it is the metafile of {meta.digest}")
        return meta

    # arriving and published

    def begin(
        self,
        meta: Metafile,
        *,
        shared: int = 0,
        own_bytes: OwnBytes = nothing_shared,
        claims: Claims = claim_everything,
        make_room: MakeRoom = keep_everything,
        keeps_links: bool = False,
        at_work: bool = False,
    ) -> Path:
        """Reserves room and returns the object's directory; its bytes belong under `content/` in
        it.

        Calling it again resumes: nothing is lost and nothing is reserved twice. `make_room` is
        called first. If room is still lacking, unclaimed bundles are removed. If that would not be
        enough, none is removed and `disk_full` is raised. `shared` bytes will be taken from other
        bundles; they need no room on a file system that can clone. `own_bytes` is called only if
        room is lacking. `keeps_links`: nobody will write into small files, so those that other
        bundles have too need no copy. `at_work`: bytes arrive at this moment, so all stays as it
        is.
        """
        digest = meta.digest
        with self._state.alone(digest), disk_failures(self.data_dir, needed=meta.size):
            directory = self._objects.directory(digest)
            if self.get(digest) is not None:
                return directory
            self._reserve_room(digest, RoomNeeded(meta.size, shared, meta.packed_size), own_bytes, claims, make_room)
            try:
                if at_work and directory.exists() and self._has_begun(meta):
                    return directory
                if directory.exists():
                    kept = {file.path for file in meta.packed.files} if keeps_links else set()
                    self._objects.resume(digest, meta.raw, kept, self._reserve)
                else:
                    self._objects.create(digest, meta.raw)
            except BaseException:
                if not directory.exists():
                    self._state.now_gone(digest)
                raise
            self._begun[digest] = meta
        return directory

    def _has_begun(self, meta: Metafile) -> bool:
        begun = self._begun.get(meta.digest)
        return begun is not None and begun.raw == meta.raw

    def publish(self, digest: Digest) -> StoredBundle:
        """Publishes an arriving bundle. The caller has verified every byte and closed every
        file."""
        with self._state.alone(digest):
            stored = self.get(digest)
            if stored is not None:
                return stored
            meta = self._begun.get(digest) or self.metafile(digest)
            if meta is None or digest not in self._state.arriving():
                raise TorrentdistError("not_found", what=f"an arriving bundle {digest}")
            content = self._objects.arriving_content(digest)
            with disk_failures(self.data_dir, needed=meta.size):
                known = finish_content(meta, content)
                write_packs(meta, content, content.parent)  # those that the swarm has not brought
                protect_packs(meta, content.parent)
                marks = mark_files(content, marked_files(meta), known)
                head = Head(size=meta.size, files=len(meta.files), published_at=self._clock())
                self._objects.seal(digest, head, marks)
                self._checks.forget(digest)
                self._objects.link(digest)
            return self._now_published(digest, head, head.published_at)

    def abandon(self, digest: Digest) -> None:
        """Deletes an arriving bundle. If it was published meanwhile, it stays."""
        with self._state.alone(digest):
            if digest in self._state.arriving():
                self._remove(digest)

    def discard(self, digest: Digest, is_held: Callable[[], bool] = held_by_nobody) -> bool:
        """Deletes a bundle, published or arriving, pinned or not, unless it is published and held
        by now. Its names stay bound. Returns whether it is gone.

        The next `open` finishes an interrupted deletion.
        """
        with self._state.alone(digest):
            is_published = self.get(digest) is not None
            if is_published and is_held():
                return False
            if is_published or digest in self._state.arriving():
                self._remove(digest)
                self._catalog.unpin(digest)
            return True

    def evict(self, digest: Digest, claims: Claims) -> bool:
        """Deletes a published bundle unless something claims it by now. Returns whether it did."""
        with self._state.alone(digest):
            stored = self.get(digest)
            if stored is None or stored.pinned or claims(digest):
                return False
            self._remove(digest)
            return True

    def settled(self, digest: Digest) -> StoredBundle | None:
        """Returns a published bundle once no thread changes it. What was claimed or held before
        this call is neither evicted nor discarded after it."""
        with self._state.alone(digest):
            return self.get(digest)

    def set_aside(self, digest: Digest, reason: str) -> None:
        """Unpublishes a damaged bundle at once.

        It then counts as arriving: `begin` it again, and fetch only its damaged parts.
        """
        with self._state.alone(digest), disk_failures(self.data_dir):
            stored = self.get(digest)
            if stored is not None:
                self._state.now_arriving(digest, stored.size)
                self._objects.set_aside(digest, reason)

    # damage

    def check_quick(self, digest: Digest) -> list[Damage]:
        """Returns the files that are not as they were published. A bad index is damage too."""
        self._require_published(digest)
        return self._checks.check_files(digest)

    def check(self, digest: Digest, paths: Collection[str] | None = None) -> list[Damage]:
        """Returns the damage of these files (None: all). Called before any content is handed out.

        A file with its marked identity is not read. A file with a new identity is hashed.
        """
        self._require_published(digest)
        return self._checks.check(digest, paths)

    def look(self, digest: Digest, paths: Collection[str] | None = None) -> list[Damage] | None:
        """Like `check`, but reads no file. None: a file has to be read."""
        self._require_published(digest)
        return self._checks.look(digest, paths)

    def note_links(self, digest: Digest, paths: Collection[str], sharers: Iterable[Digest] = ()) -> None:
        """Takes over the new times of files that were checked and then linked into another bundle
        of this store, also for the other bundles that may share them."""
        inodes = self._checks.note_links(digest, paths)
        for other in sharers if inodes else ():
            with suppress(TorrentdistError):  # Its files are read when they are handed out.
                self._checks.note_inodes(other, inodes)

    def is_file(self, digest: Digest, path: str) -> bool:
        """Whether this path is a file of a published bundle. Files that others added are not."""
        self._require_published(digest)
        return self._checks.is_file(digest, path)

    def verify(self, digest: Digest, progress: Progress | None = None) -> list[Damage]:
        """Reads every byte of a published bundle and returns its damage."""
        self._require_published(digest)
        return self._checks.verify(digest, progress)

    def sharers(self, digest: Digest, paths: Collection[str]) -> list[Digest]:
        """Returns the other published bundles that have one of these files under another name."""
        inodes = self._checks.shared_inodes(digest, paths)
        others = self.published().keys() - {digest} if inodes else ()
        return [other for other in others if self._checks.holds_inodes(other, inodes)]

    # names, pins, use

    def bind(self, bundle: BundleId, digest: Digest) -> None:
        self._catalog.bind(bundle, digest)

    def unbind(self, bundle: BundleId) -> None:
        self._catalog.unbind(bundle)

    def pin(self, digest: Digest) -> None:
        """Keeps this bundle from eviction and pruning, even if it is not here yet."""
        self._catalog.pin(digest)
        self._state.now_pinned(self._catalog.pins())

    def unpin(self, digest: Digest) -> None:
        self._catalog.unpin(digest)
        self._state.now_pinned(self._catalog.pins())

    def touch(self, digest: Digest) -> None:
        """Records that the bundle is used now. Never fails, and writes at most once a minute."""
        now = self._clock()
        if self._state.now_used(digest, now) and now - self._use_recorded.get(digest, 0.0) >= USE_GRANULARITY_SECS:
            self._record_use(digest, now)

    def plan_prune(self, *, older_than: float, claims: Claims = claim_everything) -> list[StoredBundle]:
        """Returns the bundles that `prune` would remove now."""
        return self._state.plan_prune(older_than=older_than, now=self._clock(), claims=claims)

    def plan_to_low(
        self, marks: StoreMarks, *, taken: int, own: Mapping[Digest, int], claims: Claims = claim_everything
    ) -> list[StoredBundle]:
        """Returns the bundles to remove now because the store has passed its high mark.

        `taken`: the bytes on disk of all published bundles. `own`: those of each bundle alone.
        """
        return self._state.plan_to_low(marks, taken=taken, own=own, now=self._clock(), claims=claims)

    def reasons_to_stay(
        self, *, older_than: float, claims: Claims = claim_everything
    ) -> dict[Digest, frozenset[KeepReason]]:
        """Returns the reasons for each bundle that `prune` would leave."""
        return self._state.reasons_to_stay(older_than=older_than, now=self._clock(), claims=claims)

    def prune(self, *, older_than: float, claims: Claims = claim_everything) -> Pruned:
        """Removes the unclaimed bundles that were not used for `older_than` seconds."""
        doomed = self._state.seize_prunable(older_than=older_than, now=self._clock(), claims=claims)
        self._remove_seized([stored.digest for stored in doomed])
        return Pruned(tuple(doomed), kept=len(self.published()))

    # internals

    def _recover(self) -> None:
        self._objects.prepare()
        found = self._objects.recover()
        for digest, (head, used_at) in found.published.items():
            self._now_published(digest, head, min(used_at, self._clock()))  # The clock may have been ahead.
        for digest in found.arriving:
            self._state.now_arriving(digest, *self._arriving_sizes(digest))

    def _now_published(self, digest: Digest, head: Head, used_at: float) -> StoredBundle:
        stored = StoredBundle(
            digest=digest,
            size=head.size,
            files=head.files,
            content=self._objects.published_content(digest),
            pinned=digest in self._catalog.pins(),
            used_at=used_at,
            published_at=head.published_at,
        )
        self._begun.pop(digest, None)
        self._use_recorded[digest] = used_at
        self._state.now_published(stored)
        return stored

    def _arriving_sizes(self, digest: Digest) -> tuple[int, int]:
        """Returns the size of a bundle, and that of its packs."""
        try:
            meta = self.metafile(digest)
        except TorrentdistError:
            return 0, 0
        return (meta.size, meta.packed_size) if meta else (0, 0)

    def _require_published(self, digest: Digest) -> None:
        if self.get(digest) is None:
            raise TorrentdistError("not_found", what=f"a published bundle {digest}")

    def _reserve_room(
        self, digest: Digest, room: RoomNeeded, own_bytes: OwnBytes, claims: Claims, make_room: MakeRoom
    ) -> None:
        arriving = self._state.arriving()
        if digest in arriving:
            self._state.now_arriving(digest, room.size, room.packs)
            return
        make_room(room.size, self.measure())
        free = free_bytes(self.data_dir) - self._reserve
        written: dict[Digest, int] | None = None
        own: Mapping[Digest, int] = {}
        if self._state.shortage(replace(room, shared=0), free, None).most > 0:
            written = {other: self._objects.written_bytes(other) for other in arriving}
            own = own_bytes()
            if not own:
                room = replace(room, shared=0)
        victims = self._state.reserve(digest, room, free=free, written=written, own=own, claims=claims)
        if victims is None:
            lack = self._state.shortage(room, free, written).most
            needed = room.on_disk
            raise TorrentdistError("disk_full", path=str(self.data_dir), needed=needed, free=max(0, needed - lack))
        try:
            self._remove_seized(victims)
        except BaseException:
            self._state.now_gone(digest)
            raise

    def _remove_seized(self, digests: Sequence[Digest]) -> None:
        try:
            for digest in digests:
                self._remove(digest)
        finally:
            self._state.let_go(digests)

    def _remove(self, digest: Digest) -> None:
        """Deletes an object. The caller holds it with `alone` or has seized it. If nothing of it
        could be deleted, it stays what it was."""
        was = self.get(digest)
        self._begun.pop(digest, None)
        self._use_recorded.pop(digest, None)
        self._state.now_unpublished(digest)
        try:
            with disk_failures(self.data_dir), self._checks.removing(digest, self.likely_sharers(digest)):
                self._objects.remove(digest)
        except TorrentdistError:
            if was is not None and self._objects.is_linked(digest):
                self._state.now_published(was)
                raise
            if self._objects.directory(digest).exists():
                self._state.now_arriving(digest, *self._arriving_sizes(digest))
                raise
            self._state.now_gone(digest)
            raise
        finally:
            if was is not None and self.get(digest) is None:
                self.on_deleted(digest)
        self._state.now_gone(digest)

    def _record_use(self, digest: Digest, at: float) -> None:
        with suppress(OSError):
            self._objects.record_use(digest, at)
            self._use_recorded[digest] = at
