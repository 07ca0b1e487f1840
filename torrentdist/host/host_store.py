"""A host's store for use on the event loop: queries are answered from memory, everything else runs
in threads.

Always: a method that may wait for the disk is a coroutine, so that nobody can block the loop by
mistake. Metafiles are parsed by the few threads for heavy work.
Never: decide anything. `Store` does the work.
Longer than most files: each method of `Store` has its coroutine here.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from weakref import WeakValueDictionary

from torrentdist.bundle.content_check import Damage
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.packs.version_updates import update_to, whole_of
from torrentdist.bundle.reuse.file_filling import Filling
from torrentdist.bundle.reuse.own_sizes import OwnSizes
from torrentdist.bundle.reuse.recipe import Recipe
from torrentdist.bundle.reuse.reuse_plan import Reused
from torrentdist.bundle.reuse.store_reuse import NOTHING_SENT, StoreReuse
from torrentdist.bundle.store.retention import StoreMarks
from torrentdist.bundle.store.store import (
    Arrival,
    Claims,
    KeepReason,
    MakeRoom,
    Store,
    StoredBundle,
    StoreUsage,
    StoreView,
    claim_everything,
    held_by_nobody,
    keep_everything,
)
from torrentdist.host.process.heavy_work import in_heavy_thread, until_ended
from torrentdist.host.process.shared_slots import SharedSlots
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest

FILLS_AT_ONCE = 2
"""More would not be faster, since each hashes with all processors."""
READS_AT_ONCE = 4
"""Bundles in doubt that are read at the same time."""
NOBODY = "nobody"
"""Stands for the uploader of a fill that none waits for. One such fill leaves others a thread."""
FREEING_SECS = 1.0
"""How long after a publication files are indexed, and after a removal its blocks looked at once
more."""
TELL_SECS = 0.5
"""Shortest interval between two reports of how much of a bundle is filled."""


class HostStore(StoreView):
    """Each coroutine runs the method of the same name of `Store`."""

    def __init__(self, store: Store, claims: Claims = claim_everything, make_room: MakeRoom = keep_everything) -> None:
        """`claims` returns why a bundle must stay when room is needed. `make_room` removes data
        that can be recreated."""
        super().__init__(store.memory)
        self._store = store
        self._claims = claims
        self._make_room = make_room
        self._reuse = StoreReuse(store)
        self._own_sizes = OwnSizes(store)
        self._indexing: asyncio.Task[None] | None = None
        self._settling = asyncio.Event()
        self._fills: dict[asyncio.Future[Filling], threading.Event] = {}
        """Each with what stops it."""
        self._readers = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="check")
        self._reading: WeakValueDictionary[Digest, asyncio.Lock] = WeakValueDictionary()
        """Held while files of a bundle in doubt are read."""
        self._filling = ThreadPoolExecutor(FILLS_AT_ONCE, thread_name_prefix="fill")
        self._turns = SharedSlots(FILLS_AT_ONCE, 1)
        self.waiting_for: Callable[[Digest], str | None] = lambda digest: None
        """Returns who waits for a fill. Each has one at once; None: as many as there are."""

    async def raw_metafile(self, digest: Digest) -> bytes | None:
        return await asyncio.to_thread(self._store.raw_metafile, digest)

    async def metafile(self, digest: Digest) -> Metafile | None:
        return await in_heavy_thread(self._store.metafile, digest)

    async def begin(self, meta: Metafile, among: Sequence[Digest] | None = None, *, at_work: bool = False) -> Path:
        """`among`: the bundles that it may be taken from; None: all. `at_work`: as in `Store`."""
        return await asyncio.to_thread(self._begin, meta, among, at_work)

    def _begin(self, meta: Metafile, among: Sequence[Digest] | None, at_work: bool) -> Path:
        """Reserves room, at the cost of the bundles that this one is taken from only if there is no
        other way."""
        sources = self._reuse.sources(meta, among=among) if self._store.get(meta.digest) is None else []
        shares = bool(sources) and (self._reuse.may_link or self._own_sizes.can_clone())
        shared = self._reuse.shared_bytes(meta, sources) if shares else 0

        def claims(digest: Digest) -> Collection[KeepReason]:
            return {*self._claims(digest), *({KeepReason.IN_USE} if digest in sources else ())}

        try:
            return self._store.begin(
                meta,
                shared=shared,
                own_bytes=self._measured,
                claims=claims,
                make_room=self._make_room,
                keeps_links=self._reuse.may_link,
                at_work=at_work,
            )
        except TorrentdistError as error:
            if error.code != "disk_full" or not sources:
                raise
        return self._store.begin(meta, own_bytes=self._measured, claims=self._claims, make_room=self._make_room)

    def may_link(self, may: bool) -> None:
        """Says whether bundles that arrive may share files with those that are here."""
        self._reuse.may_link = may

    def index_soon(self) -> None:
        """Begins `catch_up` in the background, after a pause for what a new bundle is used for."""
        if self._indexing is None or self._indexing.done():
            self._indexing = asyncio.create_task(self._index_after_pause(), name="index files")

    async def _index_after_pause(self) -> None:
        await self._pause(FREEING_SECS)
        await self.catch_up()

    async def catch_up(self) -> None:
        """Notes which files are here now, and what each bundle takes on the disk."""
        noted: Set[Digest] | None = None
        while noted != (noted := self.published_digests()) or self._reuse.has_stale:
            if self._reuse.has_stale:
                await self._pause(FREEING_SECS)
            await asyncio.to_thread(self._measured)

    async def _pause(self, seconds: float) -> None:
        """Returns after these seconds, or when the store is about to close."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._settling.wait()

    def _measured(self) -> Mapping[Digest, int]:
        self._reuse.catch_up()
        return self._own_sizes.measure(self._reuse.take_stale())

    async def settled(self) -> None:
        """Stops what works in the background, and returns when it has ended."""
        self._settling.set()
        for stop in self._fills.values():
            stop.set()
        if self._fills:
            await asyncio.wait(self._fills)
        if self._indexing is not None:
            await asyncio.gather(self._indexing, return_exceptions=True)

    async def taken_bytes(self) -> int:
        """Returns the bytes that all published bundles take on the disk together, as measured
        last. It counts every file that versions share."""
        return await asyncio.to_thread(self._own_sizes.taken)

    def own_bytes(self, digest: Digest) -> int | None:
        """Returns the bytes on disk that only this bundle uses, as measured last. None: it is not
        here."""
        stored = self.get(digest)
        return None if stored is None else self._own_sizes.of(digest, stored.size)

    async def reused(self, meta: Metafile, recipe: Recipe | None, among: Sequence[Digest] | None = None) -> Reused:
        """Returns how many bytes of this bundle published bundles hold, or those `among` them."""
        return await in_heavy_thread(self._reuse.reused, meta, recipe, among)

    async def update_to(self, digest: Digest, among: Sequence[Digest]) -> bytes:
        """Returns the update to a published bundle from one `among` these; nothing if none of them
        has much of it."""
        return await in_heavy_thread(update_to, self._store, self._reuse, digest, among)

    async def whole(self, digest: Digest) -> bytes | None:
        """Returns a small published bundle with its metafile. None: it is not small or not here."""
        return await in_heavy_thread(whole_of, self._store, digest)

    async def wants_recipe(self, meta: Metafile) -> bool:
        """Whether parts of this bundle's large files are probably here."""
        return await in_heavy_thread(self._reuse.wants_recipe, meta)

    async def raw_recipe(self, digest: Digest) -> bytes | None:
        return await asyncio.to_thread(self._reuse.raw_recipe, digest)

    async def keep_recipe(self, digest: Digest, raw: bytes) -> None:
        await asyncio.to_thread(self._reuse.keep_recipe, digest, raw)

    async def drop_recipe(self, digest: Digest) -> None:
        await asyncio.to_thread(self._reuse.drop_recipe, digest)

    async def fill(
        self,
        meta: Metafile,
        recipe: Recipe | None,
        progress: Callable[[int], None],
        among: Sequence[Digest] | None = None,
        sent: Mapping[bytes, bytes] = NOTHING_SENT,
    ) -> Filling:
        """Takes everything that published bundles hold, or those `among` them, into the arriving
        bundle, and the small files that were `sent`, by their roots. When it returns, also by being
        cancelled, no thread writes there any more."""
        loop, stop, told_at = asyncio.get_running_loop(), threading.Event(), time.monotonic()

        def tell(done: int) -> None:
            nonlocal told_at
            if time.monotonic() - told_at >= TELL_SECS:
                told_at = time.monotonic()
                loop.call_soon_threadsafe(progress, done)

        async with self._turns.taken(self.waiting_for(meta.digest)):
            work = loop.run_in_executor(
                self._filling, self._reuse.fill, meta, lambda: not stop.is_set(), tell, recipe, among, sent
            )
            self._fills[work] = stop
            work.add_done_callback(self._fills.pop)
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                stop.set()
                await until_ended(work)
                raise

    async def publish(self, digest: Digest) -> StoredBundle:
        return await asyncio.to_thread(self._store.publish, digest)

    async def abandon(self, digest: Digest) -> None:
        await asyncio.to_thread(self._store.abandon, digest)

    async def discard(self, digest: Digest, is_held: Callable[[], bool] = held_by_nobody) -> bool:
        return await asyncio.to_thread(self._store.discard, digest, is_held)

    async def evict(self, digest: Digest) -> bool:
        return await asyncio.to_thread(self._store.evict, digest, self._claims)

    def hear_deletions(self, told: Callable[[Digest], None]) -> None:
        """Has `told` called on this loop after each deletion of a published bundle."""
        loop = asyncio.get_running_loop()

        def tell(digest: Digest) -> None:
            with suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(told, digest)

        self._store.on_deleted = tell

    async def settled_bundle(self, digest: Digest) -> StoredBundle | None:
        return await asyncio.to_thread(self._store.settled, digest)

    async def set_aside(self, digest: Digest, reason: str) -> None:
        await asyncio.to_thread(self._store.set_aside, digest, reason)

    async def arrival(self, digest: Digest) -> Arrival | None:
        return await asyncio.to_thread(self._store.arrival, digest)

    async def check_quick(self, digest: Digest) -> list[Damage]:
        return await asyncio.to_thread(self._store.check_quick, digest)

    async def check(self, digest: Digest, paths: Collection[str] | None = None) -> list[Damage]:
        found = await asyncio.to_thread(self._store.look, digest, paths)
        if found is not None:
            return found
        # Many may ask for a bundle in doubt. Only one of them takes a thread, until it has ended.
        async with self._reading.setdefault(digest, asyncio.Lock()):
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(self._readers, self._store.check, digest, paths)
            await until_ended(work)
            return work.result()

    async def is_file(self, digest: Digest, path: str) -> bool:
        return await asyncio.to_thread(self._store.is_file, digest, path)

    async def verify(self, digest: Digest) -> list[Damage]:
        return await asyncio.to_thread(self._store.verify, digest)

    async def sharers(self, digest: Digest, paths: Collection[str]) -> list[Digest]:
        return await asyncio.to_thread(self._store.sharers, digest, paths)

    async def bind(self, bundle: BundleId, digest: Digest) -> None:
        if self.lookup(bundle) != digest:  # a fetch binds at its begin and at its end
            await asyncio.to_thread(self._store.bind, bundle, digest)

    async def unbind(self, bundle: BundleId) -> None:
        await asyncio.to_thread(self._store.unbind, bundle)

    async def touch(self, digest: Digest) -> None:
        await asyncio.to_thread(self._store.touch, digest)

    async def measure(self) -> StoreUsage:
        return await asyncio.to_thread(self._store.measure)

    async def check_room(self, needed: int) -> None:
        """Raises `disk_full` if what is to stay free of the disk is used up, though there was room
        when these bytes were begun. Half of it covers what a file system needs for itself."""
        usage = await self.measure()
        if usage.free_bytes < usage.reserve_bytes // 2:
            raise TorrentdistError("disk_full", path=str(self.data_dir), needed=needed, free=0)

    async def unneeded_bytes(self) -> int:
        """Returns the bytes of the bundles that nobody needs."""
        return sum(stored.size for stored in await self.plan_prune(older_than=0.0))

    async def give_way(self, needed: int) -> None:
        """Removes bundles that nobody needs, those first that were not used for the longest time,
        until so many bytes are gone."""
        for stored in sorted(await self.plan_prune(older_than=0.0), key=lambda stored: stored.used_at):
            if needed <= 0:
                return
            if await self.evict(stored.digest):
                needed -= stored.size

    async def plan_prune(self, *, older_than: float) -> list[StoredBundle]:
        return await asyncio.to_thread(self._store.plan_prune, older_than=older_than, claims=self._claims)

    async def plan_to_low(self, marks: StoreMarks) -> list[StoredBundle]:
        return await asyncio.to_thread(self._plan_to_low, marks)

    def _plan_to_low(self, marks: StoreMarks) -> list[StoredBundle]:
        own, taken = self._own_sizes.own(), self._own_sizes.taken()
        return self._store.plan_to_low(marks, taken=taken, own=own, claims=self._claims)

    async def reasons_to_stay(self, *, older_than: float) -> dict[Digest, frozenset[KeepReason]]:
        return await asyncio.to_thread(self._store.reasons_to_stay, older_than=older_than, claims=self._claims)

    async def close(self) -> None:
        await asyncio.to_thread(self._store.close)
