"""Bounds the memory that all bodies of requests take together.

Always: a large body takes room as its bytes come, and keeps it until its request is answered. A
small one needs none, so that it never waits for large ones. One sender's bodies have a share. The
oldest body that grows can always end. A body that finds no room within seconds is `not_ready`, so
that its client asks another master.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from torrentdist.model.errors import TorrentdistError

ROOM_BYTES = 256 * 1024 * 1024
"""Room for four of the largest metafiles, of which two are parsed at once."""
SMALL_BYTES = 1024 * 1024
ROOM_SECS = 5.0
"""How long a body waits for room."""

Grow = Callable[[int], Awaitable[None]]
"""Waits until there is room for a body of that size in bytes."""


class BodyRoom:
    """The room for large bodies of one application."""

    def __init__(self, size: int | None = None) -> None:
        size = ROOM_BYTES if size is None else size
        self._left = size
        self._share = size // 2
        """Most room of one sender."""
        self._for_oldest = size // 4
        """Only the oldest body takes the last room, so that bodies never wait for each other."""
        self._held: Counter[str] = Counter()
        self._growing: dict[object, None] = {}
        """The bodies that have room, the oldest first."""
        self._returned = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def taken(self, sender: str, announced: int = 0) -> AsyncIterator[Grow]:
        """Keeps the room that a body of this sender has grown to.

        It begins when there would be room for all that is announced, so that a body without room is
        refused before it is sent.
        """
        body, has = object(), 0
        if announced > SMALL_BYTES:
            await self._wait(lambda: self._is_free(body, sender, announced))

        async def grow(size: int) -> None:
            nonlocal has
            if size > SMALL_BYTES:
                await self._take(body, sender, size - has)
                has = size

        try:
            yield grow
        finally:
            if body in self._growing:
                del self._growing[body]
                self._left += has
                self._held -= Counter({sender: has})  # forgets who holds none
                async with self._returned:
                    self._returned.notify_all()

    async def _take(self, body: object, sender: str, more: int) -> None:
        self._growing.setdefault(body)
        await self._wait(lambda: self._is_free(body, sender, more))
        self._left -= more
        self._held[sender] += more

    def _is_free(self, body: object, sender: str, more: int) -> bool:
        kept = 0 if body is next(iter(self._growing), body) else self._for_oldest
        return self._left - kept >= more and self._held[sender] + more <= self._share

    async def _wait(self, is_free: Callable[[], bool]) -> None:
        if is_free():
            return
        try:
            async with asyncio.timeout(ROOM_SECS), self._returned:
                await self._returned.wait_for(is_free)
        except TimeoutError:
            raise TorrentdistError("not_ready", detail="large requests take all memory that it has for them") from None
