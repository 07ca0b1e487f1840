"""Reads blobs so that no client gets one that is not what its digest says.

A bundle's own hashes tell that its bytes are those that were uploaded. They do not tell that a
layout's blob has the digest that it is called by.
Always: each byte of a blob is hashed. The last bytes of a whole blob are held back until its hash
is right; a wrong one is cut off, and is passed over from then on, so that another image's blob of
the same digest is found. A part of a blob on this host is read once the whole blob was hashed; each
is hashed once. While a bundle arrives, parts are what was uploaded.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from torrentdist.bundle.metafile import FileEntry
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.bundles.host_content import HostContent

KEPT: Final = 10_000
"""Blobs of which is remembered that they are right, or wrong."""
WRONG_SECS: Final = 600.0
"""How long a wrong one is passed over. Its bundle may be repaired meanwhile."""
_T = TypeVar("_T")


class Blob(msgspec.Struct, frozen=True):
    size: int
    read: Callable[[int, int], AsyncIterator[bytes]]
    """Yields the bytes from a place to another."""
    content: HostContent | None = None
    """The image's bundle; None: it is not published yet."""
    file: FileEntry | None = None
    """Its place in that bundle."""


class CheckedBlobs:
    def __init__(self) -> None:
        self._right: OrderedDict[str, None] = OrderedDict()
        self._wrong: OrderedDict[str, float] = OrderedDict()
        """When they were found to be wrong."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def is_right(self, blob: Blob, digest: str) -> bool:
        """Whether the whole blob was hashed before."""
        return blob.content is None or _key(blob.content, digest) in self._right

    def is_wrong(self, content: HostContent, digest: str) -> bool:
        """Whether a bundle was found to hold something else under this digest."""
        found_at = self._wrong.get(_key(content, digest))
        return found_at is not None and time.monotonic() - found_at < WRONG_SECS

    def note_wrong(self, content: HostContent, digest: str) -> None:
        """Notes that a bundle was found to hold something else under this digest."""
        _remember(self._wrong, _key(content, digest), time.monotonic())

    async def read(self, blob: Blob, digest: str, start: int, end: int) -> AsyncIterator[bytes]:
        """Yields the bytes from `start` to `end`. Raises `corrupt` before the last ones of a wrong
        blob."""
        content = blob.content
        key = "" if content is None else _key(content, digest)
        if content is None or key in self._right:  # one that was pushed was hashed when it came
            parts = blob.read(start, end)
        elif (start, end) == (0, blob.size):
            parts = self._whole(blob, digest, key)
        else:
            if content.published():
                async with self._locks.setdefault(key, asyncio.Lock()):
                    if key not in self._right:
                        async for _ in self._whole(blob, digest, key):
                            pass
            parts = blob.read(start, end)
        async for data in parts:
            yield data

    async def _whole(self, blob: Blob, digest: str, key: str) -> AsyncIterator[bytes]:
        found, last = hashlib.sha256(), b""
        async for data in blob.read(0, blob.size):
            if last:
                yield last
            found.update(data)
            last = data
        if f"sha256:{found.hexdigest()}" != digest:
            if blob.content is not None:
                self.note_wrong(blob.content, digest)
            raise TorrentdistError("corrupt", path=digest, detail="its bundle holds something else under this name")
        _remember(self._right, key, None)
        if last:
            yield last


def _key(content: HostContent, digest: str) -> str:
    return f"{content.meta.digest} {digest}"


def _remember(among: OrderedDict[str, _T], key: str, value: _T) -> None:
    among[key] = value
    if len(among) > KEPT:
        among.popitem(last=False)
