"""The updates that this host received: it makes metafiles of them, keeps the small files in them
for the fetch that follows, and passes the updates on to other hosts.

Always: an update is kept for a minute after it last came. Few are kept at once, and few bytes.
Whoever asks for one that is on its way waits a moment.
"""

import asyncio
import hashlib
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.packs.pack_update import apply_update, base_of
from torrentdist.host.host_store import HostStore
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest

MOST_BASES: Final = 8
"""How many bundles of this host an update may begin with: the newest ones."""
MOST_KEPT: Final = 64
"""As many as a host fetches bundles at the same time: each may come with an update."""
MOST_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of all updates that are kept. The newest one may be larger."""
KEPT_SECS: Final = 60.0


class SentFiles(NamedTuple):
    """Small files that came with an update, by their roots."""

    files: Mapping[bytes, bytes] = {}
    by_master: bool = False
    """Whether a master sent them, and no other host."""


@dataclass(eq=False)
class _Kept:
    raw: bytes
    digest: Digest
    sent: SentFiles
    end: asyncio.TimerHandle
    """Forgets it in time. It is cancelled when something else forgets it."""

    @property
    def size(self) -> int:
        return len(self.raw) + sum(map(len, self.sent.files.values()))


class ReceivedUpdates:
    def __init__(self, store: HostStore) -> None:
        self._store = store
        self._kept: dict[Digest, _Kept] = {}
        """By the hashes of the updates, the newest last."""
        self._arrival = asyncio.Event()
        """Set when an update was received, and then replaced."""

    def bases(self) -> list[Digest]:
        """Returns the bundles that an update may begin with."""
        newest = sorted(self._store.published().values(), key=lambda stored: -stored.published_at)
        return [stored.digest for stored in newest[:MOST_BASES]]

    async def take(self, raw: bytes, digest: Digest, *, by_master: bool) -> Metafile:
        """Returns the metafile of `digest` that an update leads to."""
        begins_with, hash = await in_heavy_thread(_identified, raw)
        base = None if begins_with is None else await self._store.metafile(begins_with)
        if begins_with is not None and base is None:
            raise TorrentdistError("not_found", what="the version that an update begins with")
        update = await in_heavy_thread(apply_update, raw, base, digest)
        end = asyncio.get_running_loop().call_later(KEPT_SECS, self._forget, hash)
        self._keep(hash, _Kept(raw, digest, SentFiles(update.files, by_master), end))
        self._arrival.set()
        self._arrival = asyncio.Event()
        return update.meta

    def _keep(self, hash: Digest, new: _Kept) -> None:
        self._forget(hash)
        self._kept[hash] = new
        while len(self._kept) > MOST_KEPT or (len(self._kept) > 1 and self._size() > MOST_KEPT_BYTES):
            self._forget(next(iter(self._kept)))

    def _size(self) -> int:
        return sum(kept.size for kept in self._kept.values())

    def _forget(self, hash: Digest) -> None:
        if (old := self._kept.pop(hash, None)) is not None:
            old.end.cancel()

    def files_of(self, digest: Digest) -> SentFiles:
        """Returns the small files that came with the last update to a bundle, once."""
        sent = SentFiles()
        for kept in self._kept.values():
            if kept.digest == digest:
                sent, kept.sent = kept.sent, SentFiles()
        return sent

    async def raw(self, hash: Digest, within: float) -> bytes | None:
        """Returns an update as soon as it is here, or None after `within` seconds."""
        until = time.monotonic() + within
        while (kept := self._kept.get(hash)) is None and time.monotonic() < until:
            with suppress(TimeoutError):
                async with asyncio.timeout(until - time.monotonic()):
                    await self._arrival.wait()
        return None if kept is None else kept.raw


def _identified(raw: bytes) -> tuple[Digest | None, Digest]:
    """Returns the version that an update begins with, if it does with any, and the update's
    hash."""
    return base_of(raw), Digest(hashlib.sha256(raw).hexdigest())
