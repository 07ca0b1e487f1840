"""The fetches of this master: each bundle's metafile first, then its bytes, by swarm or plug-in.

Always: a digest is fetched once at a time. Bytes that arrive over HTTP are left to their upload. An
upload takes a slot only once somebody has announced it, and gives it back to others while nothing
comes.
Never: decide which bundle is fetched; replication_plan.py does.
"""

import asyncio
from collections.abc import Coroutine

from torrentdist.bundle.files.durability import as_failure
from torrentdist.bundle.metafile import Metafile
from torrentdist.cluster.records.snapshot import BundleEntry
from torrentdist.host.process.shared_slots import SharedSlots
from torrentdist.log import get_logger
from torrentdist.master.bundles.intake import Intake
from torrentdist.master.master_core import MasterCore
from torrentdist.master.replication.fetch_attempts import FetchAttempts
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleRecord, BundleState
from torrentdist.model.wire.transfer_messages import TransferPhase, TransferView

log = get_logger()

MOST_UPLOADS = 48
"""Most uploads that are fetched at once. A fetch holds a thread, and other fetches need some."""
MOST_UPLOADS_EACH = 16
PEERS_SECS = 60.0
"""How long a fetch waits for somebody who has the upload. That takes no thread."""
GIVE_WAY_SECS = 5.0
LEAST_RATE = 64 * 1024
"""Bytes per second. An upload's fetch that is slower than that for so long makes place for one that
waits."""


class ReplicaFetches:
    def __init__(self, core: MasterCore, intake: Intake, attempts: FetchAttempts, swarms: Swarms) -> None:
        self._runtime = core.host.runtime
        self._links = core.host.links
        self._intake = intake
        self._attempts = attempts
        self._swarms = swarms
        self.joins_uploads = core.host.joins_uploads
        """Whether the plug-in can fetch while the uploader is the only source."""
        self._catch_up_limit = core.config.replication.catch_up_limit
        self._slots = SharedSlots(MOST_UPLOADS, MOST_UPLOADS_EACH)
        self._tasks: dict[Digest, asyncio.Task[None]] = {}
        self._catching_up: set[Digest] = set()
        """Digests being fetched that no uploader waits for."""

    def start(self, entry: BundleEntry, first: list[str]) -> None:
        """Begins a fetch. `first`: URLs of masters to ask before others."""
        self._tasks[entry.record.digest] = asyncio.create_task(self._fetch(entry.record, first))

    def under_way(self) -> frozenset[Digest]:
        """Returns the digests that are being fetched, or that arrive over HTTP."""
        return frozenset(self._tasks) | self._intake.over_http()

    def cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _fetch(self, record: BundleRecord, first: list[str]) -> None:
        bundle, digest, uploading = record.id, record.digest, record.state is BundleState.UPLOADING
        self._attempts.begun(digest)
        try:
            if not uploading:
                self._catching_up.add(digest)
                self._share_limit()
            meta = await self._own_metafile(digest)
            if meta is None:
                meta = await self._metafile_of(digest, first)
            if uploading:
                await self._swarms.wait_for_peers(digest, PEERS_SECS)
                async with self._slots.taken(record.owner):
                    await self._while_moving(record, self._fetch_upload(bundle, meta))
            elif digest not in self._intake.over_http():
                await self._fetch_published(bundle, meta, first)
            self._attempts.succeeded(digest)
        except Exception as exc:
            error = as_failure(exc, self._runtime.store.data_dir)
            failures = self._attempts.failed(digest, error, uploading=uploading)
            bug = exc if error.code == "internal" else None
            log.warning(
                "fetch failed", bundle=bundle, error=error.code, detail=error.message, failures=failures, exc_info=bug
            )
        finally:
            self._tasks.pop(digest, None)
            self._catching_up.discard(digest)
            self._share_limit()
            self._attempts.poke()

    async def _fetch_upload(self, bundle: BundleId, meta: Metafile) -> None:
        if not self._intake.awaits(meta.digest):
            return  # it was removed or finished meanwhile, or its bytes come over HTTP, in order
        if bundle not in self._intake.bundles_of(meta.digest):
            return  # it was forgotten, and another upload of its content has begun
        fetches = self._runtime.fetches
        await (fetches.fetch if self.joins_uploads else fetches.fetch_from_uploader)(bundle, meta)

    async def _while_moving(self, record: BundleRecord, fetch: Coroutine[None, None, None]) -> None:
        """Ends the fetch when little has come for a while and others wait for a slot. What has
        arrived stays."""
        digest = record.digest
        task = asyncio.create_task(fetch)
        try:
            before: int | None = None
            while not (await asyncio.wait({task}, timeout=GIVE_WAY_SECS))[0]:
                view = self._runtime.transfer_view(digest)
                if view is None or view.phase is not TransferPhase.FETCHING:
                    continue
                if is_slow(before, view, GIVE_WAY_SECS) and self._slots.are_wanted(record.owner):
                    await self._runtime.fetches.stop(digest)
                    raise TorrentdistError("timed_out", what=f"fetching {digest[:12]}", seconds=GIVE_WAY_SECS)
                before = view.done
            task.result()
        finally:
            task.cancel()

    async def _fetch_published(self, bundle: BundleId, meta: Metafile, first: list[str]) -> None:
        made = None if self.joins_uploads else await self._links.plugin_metafile(meta.digest, first)
        await self._runtime.fetches.fetch(bundle, meta, plugin_metafile=made)

    def _share_limit(self) -> None:
        self._runtime.transfers.share_limit(self._catching_up, self._catch_up_limit)

    async def _own_metafile(self, digest: Digest) -> Metafile | None:
        """Returns this store's metafile; None: it is missing or damaged, and is fetched anew."""
        try:
            return await self._runtime.store.metafile(digest)
        except TorrentdistError as error:
            log.warning("a damaged metafile is fetched anew", digest=digest, detail=error.message)
            return None

    async def _metafile_of(self, digest: Digest, first: list[str]) -> Metafile:
        try:
            return await self._links.metafile_of(digest, first)
        except TorrentdistError as error:
            if error.code in ("not_found", "unreachable"):
                self._swarms.want_metafile(digest)
            raise


def is_slow(before: int | None, now: TransferView, secs: float) -> bool:
    """Whether a transfer goes on more slowly than LEAST_RATE. `before`: the bytes that it had
    `secs` ago; None: not known."""
    return before is not None and now.done < now.size and now.done - before < LEAST_RATE * secs
