"""Keeps what moves across a border and what the engine moves together below one rate limit.

Always: bytes that move across the border are paced below the limit, and the engine has what they
leave, at least a tenth. When nothing moves across the border, the engine has the whole limit again.
"""

import asyncio
import math
from collections.abc import Callable

WINDOW_SECS = 1.0
"""How long bytes are counted before the engine's part changes."""
LEFT = 0.1
"""The part of a limit that the engine has at least."""


class SharedLimit:
    def __init__(self, limit: Callable[[], int], give_engine: Callable[[int], None]) -> None:
        """`limit` returns the bytes per second for both; 0: there is no limit. `give_engine` sets
        the engine's part."""
        self._limit = limit
        self._give_engine = give_engine
        self._free_at = 0.0
        self._moved = 0
        self._timer: asyncio.TimerHandle | None = None

    async def allowed(self, secs: float = math.inf) -> bool:
        """Waits until the limit allows more, at most `secs`. Returns whether it does."""
        wait = self._free_at - asyncio.get_running_loop().time()
        if wait > 0:
            await asyncio.sleep(min(wait, secs))
        return wait <= secs

    def moved(self, size: int) -> None:
        """Notes that so many bytes have moved."""
        limit = self._limit()
        if not limit:
            return
        loop = asyncio.get_running_loop()
        self._moved += size
        if self._timer is None:
            self._timer = loop.call_later(WINDOW_SECS, self._share)
        self._free_at = max(self._free_at, loop.time()) + size / limit

    def _share(self) -> None:
        limit, moved, self._moved, self._timer = self._limit(), self._moved, 0, None
        if limit:
            self._give_engine(max(int(limit * LEFT), limit - int(moved / WINDOW_SECS)))
        if moved:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_SECS, self._share)
