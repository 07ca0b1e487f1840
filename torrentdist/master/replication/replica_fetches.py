"""The fetches of this master: each bundle's metafile first, then its bytes, by swarm or plug-in.

Always: a digest is fetched once at a time. Bytes that arrive over HTTP are left to their upload.
Never: decide which bundle is fetched; replication_plan.py does.
"""

from __future__ import annotations

import asyncio

from torrentdist.bundle.files.disk_failures import as_failure
from torrentdist.bundle.metafile import Metafile
from torrentdist.log import get_logger
from torrentdist.master.bundles.intake import Intake
from torrentdist.master.master_core import MasterCore
from torrentdist.master.replication.fetch_attempts import FetchAttempts
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest

log = get_logger()


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
        self._tasks: dict[Digest, asyncio.Task[None]] = {}
        self._catching_up: set[Digest] = set()
        """Digests being fetched that no uploader waits for."""

    def start(self, bundle: BundleId, digest: Digest, *, uploading: bool, first: list[str]) -> None:
        """Begins a fetch. `first`: URLs of masters to ask before others."""
        self._tasks[digest] = asyncio.create_task(self._fetch(bundle, digest, uploading, first))

    def under_way(self) -> frozenset[Digest]:
        """Returns the digests that are being fetched, or that arrive over HTTP."""
        return frozenset(self._tasks) | self._intake.over_http()

    def cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _fetch(self, bundle: BundleId, digest: Digest, uploading: bool, first: list[str]) -> None:
        self._attempts.begun(digest)
        try:
            if not uploading:
                self._catching_up.add(digest)
                self._share_limit()
            meta = await self._own_metafile(digest)
            if meta is None:
                meta = await self._metafile_of(digest, first)
            if digest in self._intake.over_http():
                return  # an upload over HTTP has begun meanwhile, and its bytes come in order
            await self._fetch_bytes(bundle, meta, uploading, first)
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

    async def _fetch_bytes(self, bundle: BundleId, meta: Metafile, uploading: bool, first: list[str]) -> None:
        if self.joins_uploads:
            await self._runtime.fetches.fetch(bundle, meta)
        elif uploading:
            await self._runtime.fetches.fetch_from_uploader(bundle, meta)
        else:
            plugin = await self._links.plugin_metafile(meta.digest, first)
            await self._runtime.fetches.fetch(bundle, meta, plugin_metafile=plugin)

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
