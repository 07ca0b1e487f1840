"""Lets this host's plug-in and its signatures forget the bundles that the cluster has removed.

Always: a bundle is forgotten once masters lack its id, or give other content for it. Masters are
asked beside the keeper's rounds, so that nobody waits for one that does not answer.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress

from torrentdist.bundle.files.durability import as_failure
from torrentdist.distributor.plugin_files import PLUGIN_DIR, kept_bundles
from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.log import get_logger
from torrentdist.model.backoff import Retry
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.supervisor.bundles.bundle_signatures import BundleSignatures

log = get_logger()

ASK_SECS = 10.0
"""How long until masters are asked again about a bundle that may not be gone."""
UNCLEAR_SECS = 600.0
"""How long masters are asked whether a bundle is removed of which the plug-in still knows."""
NO_MASTER = ("unreachable", "not_ready", "zookeeper_unavailable")
"""Errors that say that no master could answer."""


class Forgetting:
    def __init__(self, host: HostDaemon, signatures: BundleSignatures) -> None:
        self._runtime = host.runtime
        self._links = host.links
        self._signatures = signatures
        self._gone: dict[BundleId, tuple[Digest, float]] = {}
        """What is gone here, and since when (monotonic)."""
        self._trouble = Retry(ASK_SECS, ASK_SECS)
        self._ask_at = 0.0
        self._asking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Notes what an earlier process had not let the plug-in forget when it ended."""
        store = self._runtime.store
        for bundle, digest in (await asyncio.to_thread(kept_bundles, store.data_dir / PLUGIN_DIR)).items():
            if store.lookup(bundle) is None:
                self.note(bundle, digest)

    def note(self, bundle: BundleId, digest: Digest) -> None:
        """Notes that a bundle is gone here. If the cluster lacks it too, it is forgotten."""
        self._gone[bundle] = (digest, time.monotonic())
        self._ask_at = 0.0

    def begin(self) -> None:
        """Begins to forget what is gone. A plug-in leaves the swarm, and outside of it no master
        would say that content is removed: what is still here without a name stays."""
        if (self._asking is None or self._asking.done()) and self._due():
            self._asking = asyncio.create_task(self._forget_due(), name="forget removed bundles")

    def _due(self) -> dict[BundleId, Digest]:
        """Returns what is gone here, if it is time to ask masters about it."""
        if time.monotonic() < self._ask_at:
            return {}
        store = self._runtime.store
        return {
            bundle: digest for bundle, (digest, _) in self._gone.items() if not store.get(digest) or store.names(digest)
        }

    async def _forget_due(self) -> None:
        while gone := self._due():
            now = time.monotonic()
            self._ask_at = now + ASK_SECS  # What is noted meanwhile is due at once.
            await self._forget(gone, now)

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _forget(self, gone: Mapping[BundleId, Digest], now: float) -> None:
        forgotten, answers, is_well = list[BundleId](), True, True
        for bundle, digest in sorted(gone.items()):
            try:
                is_clear = answers and await self._in_plugin(bundle, digest)
            except Exception as exc:
                error = as_failure(exc, self._runtime.store.data_dir)
                is_clear, is_well, answers = False, False, error.code not in NO_MASTER
                if self._trouble.failed(error.code) and answers:
                    bug = error.__cause__ if error.code == "internal" else None
                    log.warning("a removed bundle is not forgotten yet", bundle=bundle, error=error.code, exc_info=bug)
            current, since = self._gone.get(bundle, (None, now))
            if current == digest and (is_clear or now - since >= UNCLEAR_SECS):
                del self._gone[bundle]
                forgotten.append(bundle)
        if is_well:
            self._trouble.succeeded()
        with suppress(OSError):  # A signature is checked before it is believed.
            await asyncio.to_thread(self._signatures.forget, forgotten)

    async def _in_plugin(self, bundle: BundleId, digest: Digest) -> bool:
        """Lets the plug-in forget a bundle, unless a bundle of this id was uploaded meanwhile.

        Returns False if a master gives the content that was removed: it may not have seen the
        removal yet. Raises an error if no master answers or the disk fails.
        """
        try:
            return (await self._links.metafile(bundle)).digest != digest
        except TorrentdistError as error:
            if error.code != "bundle_not_found":
                raise
        if self._runtime.store.lookup(bundle) == digest:
            await self._runtime.store.unbind(bundle)  # A master that had not heard of the removal gave it again.
        await self._runtime.fetches.clean_up(bundle, digest)
        return True
