"""The updates that this host received: it makes metafiles of them, keeps the small files in them
for the fetch that follows, and passes the updates on to other hosts.

Always: an update is kept for a minute, and few are kept at once. Whoever asks for one that is on
its way waits a moment.
"""

import asyncio
import hashlib
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.packs.pack_update import apply_update, base_of
from torrentdist.host.host_store import HostStore
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest

MOST_BASES: Final = 8
"""How many bundles of this host an update may begin with: the newest ones."""
MOST_KEPT: Final = 4
KEPT_SECS: Final = 60.0


class SentFiles(NamedTuple):
    """Small files that came with an update, by their roots."""

    files: Mapping[bytes, bytes] = {}
    by_master: bool = False
    """Whether a master sent them, and no other host."""


class ReceivedUpdates:
    def __init__(self, store: HostStore) -> None:
        self._store = store
        self._raw: dict[Digest, bytes] = {}
        """By their hashes."""
        self._files: dict[Digest, SentFiles] = {}
        self._arrival = asyncio.Event()
        """Set when an update was received, and then replaced."""

    def bases(self) -> list[Digest]:
        """Returns the bundles that an update may begin with."""
        newest = sorted(self._store.published().values(), key=lambda stored: -stored.published_at)
        return [stored.digest for stored in newest[:MOST_BASES]]

    async def take(self, raw: bytes, digest: Digest, *, by_master: bool) -> Metafile:
        """Returns the metafile of `digest` that an update leads to."""
        base = await self._store.metafile(base_of(raw))
        if base is None:
            raise TorrentdistError("not_found", what="the version that an update begins with")
        update = await in_heavy_thread(apply_update, raw, base, digest)
        hash = Digest(hashlib.sha256(raw).hexdigest())
        every: tuple[dict[Digest, Any], ...] = (self._raw, self._files)
        for kept in every:
            if len(kept) >= MOST_KEPT:
                del kept[next(iter(kept))]
        self._raw[hash], self._files[digest] = raw, SentFiles(update.files, by_master)
        asyncio.get_running_loop().call_later(KEPT_SECS, self._forget, hash, digest)
        self._arrival.set()
        self._arrival = asyncio.Event()
        return update.meta

    def _forget(self, hash: Digest, digest: Digest) -> None:
        self._raw.pop(hash, None)
        self._files.pop(digest, None)

    def files_of(self, digest: Digest) -> SentFiles:
        """Returns the small files that came with the update to a bundle, once."""
        return self._files.pop(digest, SentFiles())

    async def raw(self, hash: Digest, within: float) -> bytes | None:
        """Returns an update as soon as it is here, or None after `within` seconds."""
        until = time.monotonic() + within
        while (raw := self._raw.get(hash)) is None and time.monotonic() < until:
            with suppress(TimeoutError):
                async with asyncio.timeout(until - time.monotonic()):
                    await self._arrival.wait()
        return raw
