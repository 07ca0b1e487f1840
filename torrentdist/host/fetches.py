"""Fetches bundles through the plug-in: reserves room, downloads, verifies, publishes and seeds.

Always: a bundle is published only after every byte was verified, by the engine or by reading it. A
published bundle is seeded. Each digest has at most one fetch, however many callers ask for it.
Never: decide which bundles this host wants. The daemon's plan does.
Longer than most files: both ways to fetch share the recipes, the reports and the publication.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

from torrentdist.bundle.content_check import finish_content, remove_wrong_packs, verify_content
from torrentdist.bundle.files.durability import as_failure, disk_failures, write_durably
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.packs.pack_files import write_files, write_known_files
from torrentdist.bundle.reuse.chunker import LARGE_FILE
from torrentdist.bundle.reuse.recipe import Recipe, parse_recipe
from torrentdist.bundle.store.store import StoredBundle
from torrentdist.distributor.loader import joins_uploads, keeps_limits
from torrentdist.distributor.plugin_files import plugin_failures
from torrentdist.distributor.protocol import CodeDistributor
from torrentdist.host.host_parts import AT_ONCE, HostParts
from torrentdist.host.process.heavy_work import in_heavy_thread, in_writing_thread
from torrentdist.host.received_updates import ReceivedUpdates
from torrentdist.host.swarm_transfers import SwarmTransfers
from torrentdist.host.telemetry.download_story import Download, reported_download
from torrentdist.log import get_logger
from torrentdist.model.backoff import Retry
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.transfer_messages import Sources

log = get_logger()

MAX_FETCHES = 64
"""Most concurrent fetches. Each occupies a thread while its plug-in works."""
STOP_SECS = 5.0
"""How long to wait for a cancelled fetch to end."""
FORGET_AGAIN_SECS = 10.0
LONGEST_FORGET_SECS = 3600.0
"""Pauses between attempts to let a plug-in forget a bundle."""
LEAVE_AGAIN_SECS = 0.1
"""A plug-in that is about to join a swarm has joined it by then."""


class Fetches:
    def __init__(
        self,
        parts: HostParts,
        transfers: SwarmTransfers,
        plugin: CodeDistributor,
        recipe_of: Callable[[BundleId], Awaitable[bytes | None]],
    ) -> None:
        """`recipe_of` gets the recipe of a bundle from elsewhere. None: there is none."""
        self.updates = ReceivedUpdates(parts.store)
        self._recipe_of = recipe_of
        self._store = parts.store
        self._engine = parts.engine
        self._events = parts.events
        self._tell_masters = parts.tell_masters
        self._transfers = transfers
        self._plugin = plugin
        self._store.may_link(keeps_limits(plugin))  # Another plug-in may write into a file that is there.
        self._tasks: dict[Digest, asyncio.Task[StoredBundle]] = {}
        self._forgetting: set[asyncio.Task[None]] = set()
        self._brought: dict[Digest, Sources] = {}
        self._failures: dict[Digest, tuple[int, TorrentdistError]] = {}
        self._begun = asyncio.Event()
        """Set when a fetch has reserved its room or got its recipe, and then replaced."""
        self._threads = ThreadPoolExecutor(MAX_FETCHES, thread_name_prefix="fetch")
        self.keeps_recipes = False
        self.sources_of: Callable[[BundleId], Sequence[Digest] | None] = lambda bundle: None
        """Returns the bundles of this host from which parts of a bundle may be taken; None: all."""
        self.on_suspect: list[Callable[[Digest], None]] = []
        """Called with the digest of a published bundle that was found to have wrong content."""

    def under_way(self) -> set[Digest]:
        return set(self._tasks)

    def failure(self, digest: Digest) -> TorrentdistError | None:
        """Returns the error of the last fetch, or None if it did not fail."""
        return self._failures[digest][1] if digest in self._failures else None

    def failures(self) -> dict[Digest, tuple[int, TorrentdistError]]:
        """Returns each digest whose last fetch failed, with the bundle's size and the error."""
        return dict(self._failures)

    def brought(self, digest: Digest) -> Sources:
        """Returns the bytes that arrived by other means than the swarm since this process began."""
        return self._brought.get(digest, Sources())

    async def fetch(self, bundle_id: BundleId, meta: Metafile, *, plugin_metafile: bytes | None = None) -> StoredBundle:
        """Fetches the bundle unless it is here. Returns once it is published, or raises the error
        of the fetch."""
        return await self._once(bundle_id, meta, lambda: self._fetch(bundle_id, meta, plugin_metafile))

    async def _once(
        self, bundle_id: BundleId, meta: Metafile, fetch: Callable[[], Coroutine[None, None, StoredBundle]]
    ) -> StoredBundle:
        task = self._tasks.get(meta.digest)
        if task is None:
            task = asyncio.create_task(fetch(), name=f"fetch {bundle_id}")
            self._tasks[meta.digest] = task
            task.add_done_callback(lambda done: self._ended(meta, done))
        else:
            # The end of the bundle for which it began must not end it for this one.
            await self._store.bind(bundle_id, meta.digest)
        return await asyncio.shield(task)

    def _ended(self, meta: Metafile, task: asyncio.Task[StoredBundle]) -> None:
        self._tasks.pop(meta.digest, None)
        self._transfers.forget(meta.digest)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._failures.pop(meta.digest, None)
            self._store.index_soon()
        else:
            self._failures[meta.digest] = (meta.size, as_failure(error, self._store.data_dir))
            self._transfers.end_seeding(meta.digest)
        self._tell_masters(AT_ONCE)

    async def _fetch(self, bundle_id: BundleId, meta: Metafile, plugin_metafile: bytes | None) -> StoredBundle:
        stored = self._store.get(meta.digest)
        if stored is not None:
            await self._store.bind(bundle_id, meta.digest)
            return stored
        async with self._reported(bundle_id, meta) as download:
            home = await self._store.begin(meta, self.sources_of(bundle_id))
            self._now_begun()
            await self._store.bind(bundle_id, meta.digest)  # once: it may be removed before it is published
            # Another plug-in may take a file of the right size for complete.
            recipe = await self._recipe(bundle_id, meta) if plugin_metafile is None else None
            filled = await self._fill(bundle_id, meta, recipe)
            download.prepared(filled, self.brought(meta.digest))
            if not keeps_limits(self._plugin):  # It may move files, and knows no packs.
                with disk_failures(home, needed=meta.packed_size):
                    await in_writing_thread(lambda go_on: write_known_files(meta, home, go_on))
            await self._run_plugin(bundle_id, home, plugin_metafile)
            if not self._transfers.is_verified(meta.digest):
                self._brought[meta.digest] = Sources(plugin=meta.size - filled)
            download.fetched()
            stored = await self.publish(meta)
        log.info("bundle published", bundle=bundle_id, digest=meta.digest, size=meta.size)
        return stored

    def _now_begun(self) -> None:
        self._begun.set()
        self._begun = asyncio.Event()

    async def _fill(self, bundle_id: BundleId, meta: Metafile, recipe: Recipe | None) -> int:
        """Takes what this host has already into the arriving bundle. Returns the verified bytes."""
        among, sent = self.sources_of(bundle_id), self.updates.files_of(meta.digest)
        filling = await self._store.fill(
            meta, recipe, lambda done: self._transfers.note_filled(meta, done), among, sent.files
        )
        for digest in filling.suspects:
            self.suspect(digest, meta.digest)
        if filling.size:
            if not (filling.have and all(filling.have)):
                self._transfers.note_filled(meta, filling.size)
            log.info("taken from this host", digest=meta.digest, bytes=filling.size, size=meta.size)
        if filling.sent:
            count = min(filling.sent, filling.size)
            self._brought[meta.digest] = Sources(masters=count) if sent.by_master else Sources(peers=count)
        if filling.have is not None:
            self._transfers.trust_pieces(meta.digest, filling.have)
        return filling.size

    def suspect(self, digest: Digest, arriving: Digest) -> None:
        """Has a bundle looked at that a file for another one was taken from, and was wrong."""
        log.warning("a bundle to take files from is damaged", digest=digest, arriving=arriving)
        for suspect in self.on_suspect:
            suspect(digest)

    async def _recipe(self, bundle_id: BundleId, meta: Metafile) -> Recipe | None:
        """Returns the recipe if it is of use here. Masters keep it for others in any case."""
        if all(file.size <= LARGE_FILE for file in meta.files):
            return None
        is_wanted = await self._store.wants_recipe(meta)
        raw = await self._store.raw_recipe(meta.digest)
        if raw is None and (is_wanted or self.keeps_recipes):
            raw = await self._recipe_of(bundle_id)
            if raw is not None:
                await self._store.keep_recipe(meta.digest, raw)
                self._now_begun()
        return await in_heavy_thread(parse_recipe, raw) if is_wanted else None

    def _reported(self, bundle_id: BundleId, meta: Metafile) -> AbstractAsyncContextManager[Download]:
        return reported_download(self._events, bundle_id, meta, lambda: self._engine.transfer(meta.digest))

    async def _run_plugin(self, bundle_id: BundleId, home: Path, plugin_metafile: bytes | None) -> None:
        metafile_path = home / "metafile"
        with plugin_failures(self._plugin, bundle_id, home):
            if plugin_metafile is not None:
                metafile_path = home / "distributor-metafile"
                await asyncio.to_thread(metafile_path.write_bytes, plugin_metafile)
            await self._download(home / "content", bundle_id, metafile_path)

    async def _download(self, content: Path, bundle_id: BundleId, metafile: Path) -> None:
        """Runs the plug-in's download. When it ends, also by being cancelled, the plug-in writes no
        metafile any more, unless its thread hangs."""
        begun = False

        def work() -> None:
            nonlocal begun
            begun = True
            self._plugin.download(content, bundle_id, metafile)

        working = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            working.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody else will ask
            if not begun:
                working.cancel()
            await asyncio.wait({working}, timeout=STOP_SECS)
            raise

    async def fetch_from_uploader(self, bundle_id: BundleId, meta: Metafile) -> StoredBundle:
        """Fetches a bundle from its uploader's swarm, and gives it to a plug-in that does not have
        it yet."""
        return await self._once(bundle_id, meta, lambda: self._fetch_from_uploader(bundle_id, meta))

    async def _fetch_from_uploader(self, bundle_id: BundleId, meta: Metafile) -> StoredBundle:
        async with self._reported(bundle_id, meta) as download:
            home = await self._store.begin(meta, self.sources_of(bundle_id))
            await self._store.bind(bundle_id, meta.digest)
            filled = await self._fill(bundle_id, meta, await self._recipe(bundle_id, meta))
            download.prepared(filled, self.brought(meta.digest))
            await self._transfers.fetch(meta, home)
            download.fetched()
            # The plug-in must see the empty files too.
            await asyncio.to_thread(finish_content, meta, home / "content")
            await self._hand_to_plugin(bundle_id, home)
            return await self.publish(meta)

    async def _hand_to_plugin(self, bundle_id: BundleId, home: Path) -> None:
        """Lets the plug-in upload complete content, and keeps the metafile that the plug-in
        makes."""
        with plugin_failures(self._plugin, bundle_id, home):
            made = await asyncio.to_thread(self._plugin.upload, home / "content", bundle_id)
            await asyncio.to_thread(lambda: write_durably(home / "distributor-metafile", made.read_bytes()))

    async def publish_sent(self, bundle_id: BundleId, meta: Metafile) -> StoredBundle:
        """Publishes content that its uploader sent over HTTP, and gives it first to a plug-in that
        does not have it yet."""
        with disk_failures(self._store.data_dir, needed=meta.packed_size):
            home = self._store.object_dir(meta.digest)
            await in_writing_thread(lambda go_on: write_files(meta, home, go_on))
        await self._verify(meta)
        if not joins_uploads(self._plugin):
            await self._hand_to_plugin(bundle_id, self._store.object_dir(meta.digest))
        return await self._publish_verified(meta)

    async def publish(self, meta: Metafile) -> StoredBundle:
        """Verifies the content unless the engine has, then publishes and seeds the bundle."""
        if not self._transfers.is_verified(meta.digest):
            await self._verify(meta)
        return await self._publish_verified(meta)

    async def _verify(self, meta: Metafile) -> None:
        content = self._store.object_dir(meta.digest) / "content"
        await asyncio.to_thread(finish_content, meta, content)
        damage = await asyncio.to_thread(verify_content, meta, content)
        if damage:
            raise TorrentdistError("corrupt", path=damage[0].path, detail=damage[0].reason)
        await asyncio.to_thread(remove_wrong_packs, meta, content.parent)

    async def _publish_verified(self, meta: Metafile) -> StoredBundle:
        stored = await self._store.publish(meta.digest)
        await self._transfers.seed(meta.digest)
        self._tell_masters(AT_ONCE)
        return stored

    async def raw_metafile(self, digest: Digest, within: float) -> bytes | None:
        """Returns the metafile as soon as it is here, or None after `within` seconds."""
        return await self._arrived(self._store.raw_metafile, digest, within)

    async def raw_recipe(self, digest: Digest, within: float) -> bytes | None:
        """Returns the recipe as soon as it is here, or None after `within` seconds."""
        return await self._arrived(self._store.raw_recipe, digest, within)

    async def _arrived(
        self, read: Callable[[Digest], Awaitable[bytes | None]], digest: Digest, within: float
    ) -> bytes | None:
        until = time.monotonic() + within
        while True:
            begun = self._begun
            raw = await read(digest)
            if raw is not None or time.monotonic() >= until:
                return raw
            with suppress(TimeoutError):
                async with asyncio.timeout(until - time.monotonic()):
                    await begun.wait()

    async def clean_up(self, bundle_id: BundleId, digest: Digest) -> None:
        """Lets the plug-in forget a removed bundle. If it fails, the removal goes on without it,
        and the plug-in is asked again later.

        Content that another bundle has, too, is fetched or seeded on, although the plug-in may not
        know that one.
        """
        if not await self._tried_to_forget(bundle_id, digest):
            task = asyncio.create_task(self._forget_later(bundle_id, digest), name=f"forget {bundle_id}")
            self._forgetting.add(task)
            task.add_done_callback(self._forgetting.discard)

    async def _tried_to_forget(self, bundle_id: BundleId, digest: Digest) -> bool:
        """Asks the plug-in to forget a bundle. Returns whether it has."""
        names, is_here = self._store.names(digest), self._store.get(digest) is not None
        has_others = bool(names - {bundle_id}) if digest in self._tasks else is_here and names != {bundle_id}
        staying = digest if has_others else None
        try:
            with self._transfers.staying(staying), plugin_failures(self._plugin, bundle_id, self._store.data_dir):
                await asyncio.to_thread(self._plugin.cleanup, bundle_id)
        except TorrentdistError as error:
            log.warning("the plug-in did not forget a bundle", bundle=bundle_id, error=error.code, detail=error.message)
            return False
        return True

    async def _forget_later(self, bundle_id: BundleId, digest: Digest) -> None:
        """Asks the plug-in until it has forgotten a bundle, or until one of this id comes."""
        trouble = Retry(FORGET_AGAIN_SECS, LONGEST_FORGET_SECS)
        while True:
            trouble.failed("")
            await asyncio.sleep(trouble.pause_secs)
            if self._store.lookup(bundle_id) is not None or await self._tried_to_forget(bundle_id, digest):
                return

    def refuse(self, meta: Metafile, error: TorrentdistError) -> None:
        """Records why a bundle is not fetched here, so that the masters hear of it."""
        self._failures[meta.digest] = meta.size, error
        self._tell_masters(AT_ONCE)

    async def stop(self, digest: Digest) -> None:
        """Ends a fetch, and leaves the swarm. The content that has arrived stays, and nothing is
        written there any more."""
        task = self._tasks.get(digest)
        await self._end([] if task is None else [task], [digest])
        await self._engine.remove(digest)

    async def _end(self, tasks: Collection[asyncio.Task[StoredBundle]], digests: Collection[Digest] | None) -> None:
        """Cancels fetches, and waits for them. Their plug-ins may still join a swarm meanwhile."""
        for task in tasks:
            task.cancel()
        until = time.monotonic() + STOP_SECS
        await self._transfers.leave(digests)
        while (running := [task for task in tasks if not task.done()]) and time.monotonic() < until:
            await asyncio.wait(running, timeout=LEAVE_AGAIN_SECS)
            await self._transfers.leave(digests)

    def forget(self, digest: Digest) -> None:
        """Forgets the result of this digest's last fetch, and what was verified of it."""
        self._transfers.forget(digest)
        self._failures.pop(digest, None)
        self._brought.pop(digest, None)

    async def close(self) -> None:
        for task in self._forgetting:
            task.cancel()
        await self._end(list(self._tasks.values()), None)
        await self._store.settled()
        self._threads.shutdown(wait=False, cancel_futures=True)
