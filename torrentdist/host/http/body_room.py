"""Bounds the memory that all bodies of requests take together.

Always: a large body has room before any of it is read, until its request is answered. A small one
needs none, so that it never waits for large ones. A request that finds no room within seconds is
`not_ready`, so that its client asks another master.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.requests import Request

from torrentdist.model.errors import TorrentdistError

ROOM_BYTES = 256 * 1024 * 1024
"""Room for four of the largest metafiles, of which two are parsed at once."""
SMALL_BYTES = 1024 * 1024
ROOM_SECS = 5.0
"""How long a request waits for room."""


class BodyRoom:
    """The room for large bodies of one application."""

    def __init__(self, size: int = ROOM_BYTES) -> None:
        self._left = self._size = size
        self._returned = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def taken(self, request: Request, most: int) -> AsyncIterator[bool]:
        """Waits for room for the body of a request, which may have `most` bytes, and keeps it.

        Yields whether it needs any. A body that does should come quickly.
        """
        declared = request.headers.get("content-length", "")
        size = min(int(declared) if declared.isascii() and declared.isdigit() else most, most, self._size)
        if size <= SMALL_BYTES:
            yield False
            return
        await self._take(size)
        try:
            yield True
        finally:
            self._left += size
            async with self._returned:
                self._returned.notify_all()

    async def _take(self, size: int) -> None:
        try:
            async with asyncio.timeout(ROOM_SECS), self._returned:
                await self._returned.wait_for(lambda: self._left >= size)
                self._left -= size
        except TimeoutError:
            raise TorrentdistError("not_ready", detail="large requests take all memory that it has for them") from None
