"""HostServices for real: a plug-in's blocking calls, from its threads, into the daemon's event loop.

Always holds: no call waits longer than its deadline, so that a stuck loop or swarm never holds a thread for ever.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any, TypeVar

import httpx

from torrentdist.bundle.metafile import parse_metafile
from torrentdist.distributor.protocol import Holder
from torrentdist.host.runtime import HostRuntime
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.swarm.engine.preparation import ready_to_seed

CALL_SECS = 10.0

T = TypeVar("T")


class LoopServices:
    def __init__(
        self,
        runtime: HostRuntime,
        loop: asyncio.AbstractEventLoop,
        *,
        holders: Callable[[BundleId], Coroutine[Any, Any, list[Holder]]],
        raw_metafile: Callable[[BundleId], Coroutine[Any, Any, bytes]],
        token: str | None,
    ) -> None:
        self._runtime = runtime
        self._loop = loop
        self._holders = holders
        self._raw_metafile = raw_metafile
        self._token = token
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
        except asyncio.CancelledError:
            raise TorrentdistError("closing", what="this host") from None

    def holders(self, bundle_id: str) -> list[Holder]:
        return self._call(self._holders(BundleId(bundle_id)), f"listing the holders of {bundle_id}")

    def http(self) -> httpx.Client:
        """Opened when it is first asked for, by the plug-in in its own thread: to read the trusted roots takes time."""
        with self._opening:
            if self._http is None:
                self._http = httpx.Client(
                    headers={"Authorization": f"Bearer {self._token}"} if self._token is not None else {},
                    timeout=httpx.Timeout(30.0, connect=2.0),
                    trust_env=False,
                    verify=ssl.create_default_context(),  # as in everything else that we ask, whom the system trusts
                )
            return self._http

    def metafile(self, bundle_id: str) -> bytes:
        return self._call(self._raw_metafile(BundleId(bundle_id)), f"the metafile of {bundle_id}", 60.0)

    def fetch_by_swarm(self, metafile: bytes, dest_dir: Path, *, stall_secs: float) -> None:
        work = self._runtime.fetch_by_swarm(parse_metafile(metafile), dest_dir.parent, stall_secs=stall_secs)
        self._call(work, "the transfer", None)  # it has its own deadline: the stall

    def seed(self, metafile: bytes, content_dir: Path) -> None:
        meta = parse_metafile(metafile)
        ready = ready_to_seed(meta, content_dir.parent)

        async def seed() -> None:
            if self._runtime.engine.transfer(meta.digest) is None:
                self._runtime.engine.seed(meta, content_dir.parent, ready)
                self._runtime.poke()

        self._call(seed(), "seeding")

    def stop_seeding(self, digest: Digest) -> None:
        self._call(self._runtime.stop_seeding(digest), "leaving a swarm")
