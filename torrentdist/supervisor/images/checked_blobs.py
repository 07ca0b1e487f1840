"""Reads blobs so that no client gets one that is not what its digest says.

A bundle's own hashes tell that its bytes are those that were uploaded. They do not tell that a
layout's blob has the digest that it is called by.
Always: each byte of a blob is hashed. The last bytes of a whole blob are held back until its hash
is right; a wrong one is cut off. A part of a blob on this host is read once the whole blob was
hashed; each is hashed once. While a bundle arrives, parts are what was uploaded.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Final
from weakref import WeakValueDictionary

from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.bundles.host_content import HostContent
from torrentdist.supervisor.images.image_store import Blob

KEPT: Final = 10_000
"""Blobs of which is remembered that they are right."""


class CheckedBlobs:
    def __init__(self) -> None:
        self._right: OrderedDict[str, None] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def is_right(self, blob: Blob, digest: str) -> bool:
        """Whether the whole blob was hashed before."""
        return blob.content is None or _key(blob.content, digest) in self._right

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
            raise TorrentdistError("corrupt", path=digest, detail="its bundle holds something else under this name")
        self._right[key] = None
        if len(self._right) > KEPT:
            self._right.popitem(last=False)
        if last:
            yield last


def _key(content: HostContent, digest: str) -> str:
    return f"{content.meta.digest} {digest}"
