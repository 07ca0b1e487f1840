"""The services that a host offers its plug-in: blocking calls from the plug-in's threads to the
daemon's event loop.

Always: a call ends after its deadline, so that a stuck loop or swarm never blocks a thread forever.
Never: call these in the event loop itself.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from torrentdist.bundle.content_check import remove_wrong_packs
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.packs.pack_files import write_packs
from torrentdist.distributor.plugin_files import as_parsed
from torrentdist.distributor.protocol import Holder
from torrentdist.host.process.port_guard import PortGuard
from torrentdist.host.swarm_transfers import SwarmTransfers
from torrentdist.http.http_values import origin_of
from torrentdist.http.token_recipients import origins_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.swarm.engine.preparation import ready_to_seed

if TYPE_CHECKING:
    import httpx

CALL_SECS = 10.0

T = TypeVar("T")


class BundleSources(msgspec.Struct, frozen=True):
    """Where a plug-in gets information about bundles."""

    holders: Callable[[BundleId], Coroutine[Any, Any, list[Holder]]]
    """Returns the live masters that hold a bundle."""
    raw_metafile: Callable[[BundleId], Coroutine[Any, Any, bytes]]


class LoopServices:
    def __init__(
        self,
        transfers: SwarmTransfers,
        sources: BundleSources,
        loop: asyncio.AbstractEventLoop,
        guard: PortGuard,
        masters: Callable[[], Sequence[str]],
    ) -> None:
        """`guard` says how the plug-in's requests over `http` prove where they come from. Only
        `masters` get the token.
        """
        self._masters = masters
        self._transfers = transfers
        self._sources = sources
        self._loop = loop
        self._token = guard.own_token
        self._tls = guard.tls
        self._only_https = guard.only_https
        self._context: ssl.SSLContext | None = None
        self._http: httpx.Client | None = None
        self._opening = threading.Lock()

    def close(self) -> None:
        if self._http is not None:
            self._http.close()

    def _call(self, work: Coroutine[Any, Any, T], what: str, seconds: float | None = CALL_SECS) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except FutureTimeout:
            future.cancel()
            raise TorrentdistError("timed_out", what=what, seconds=seconds or 0) from None
        except (asyncio.CancelledError, FutureCancelled):
            raise TorrentdistError("closing", what=what) from None

    def holders(self, bundle_id: str) -> list[Holder]:
        return self._call(self._sources.holders(BundleId(bundle_id)), f"listing the holders of {bundle_id}")

    def http(self) -> httpx.Client:
        """Returns the HTTP client. It is created at the first use, in the plug-in's thread, because
        loading the trusted roots takes time."""
        import httpx

        with self._opening:
            context = None if self._tls is None else self._tls.client
            if self._http is None or context is not self._context:
                self._context = context
                self._http = httpx.Client(
                    auth=self._with_token,
                    timeout=httpx.Timeout(30.0, connect=2.0),
                    trust_env=False,
                    verify=context or ssl.create_default_context(),
                )
            return self._http

    def _with_token(self, request: httpx.Request) -> httpx.Request:
        """Adds the token to a request for a master. A plug-in may ask other servers too."""
        if origin_of(str(request.url)) in set(origins_of(self._masters())):
            if self._token is not None:
                request.headers["Authorization"] = f"Bearer {self._token}"
            if self._only_https:
                request.url = request.url.copy_with(scheme="https")
        return request

    def metafile(self, bundle_id: str) -> bytes:
        return self._call(self._sources.raw_metafile(BundleId(bundle_id)), f"the metafile of {bundle_id}", 60.0)

    def fetch_by_swarm(self, metafile: Metafile | bytes, dest_dir: Path, *, stall_secs: float) -> None:
        work = self._transfers.fetch(as_parsed(metafile), dest_dir.parent, stall_secs=stall_secs)
        self._call(work, "the transfer", None)  # The transfer ends by itself when it stalls.

    def seed(self, metafile: Metafile | bytes, content_dir: Path) -> None:
        meta = as_parsed(metafile)
        remove_wrong_packs(meta, content_dir.parent)
        write_packs(meta, content_dir, content_dir.parent)
        ready = ready_to_seed(meta, content_dir.parent)

        async def seed() -> None:
            self._transfers.seed_in_place(meta, content_dir.parent, ready)

        self._call(seed(), "seeding")

    def stop_seeding(self, digest: Digest) -> None:
        self._call(self._transfers.stop_seeding(digest), "leaving a swarm")
