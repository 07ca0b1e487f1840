"""Shares the fetches of uploads among those who upload.

Always: nobody holds more than a share, and whoever holds the fewest comes first. So one sender's
uploads, however many, never keep another's waiting.
Never: know what is fetched, or how.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

MOST = 48
"""Most uploads that are fetched at once. A fetch holds a thread, and other fetches need some."""
MOST_EACH = 16


class UploadSlots:
    def __init__(self, most: int = MOST, most_each: int = MOST_EACH) -> None:
        self._most = most
        self._most_each = most_each
        self._held: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    def are_wanted(self, owner: str) -> bool:
        """Whether a slot of this owner would go to an upload that waits, maybe another of the same
        owner: a client that has died would else keep its owner waiting."""
        is_full = self._held.total() >= self._most
        return any(name == owner or (is_full and self._held[name] < self._most_each) for name, _ in self._waiting)

    @asynccontextmanager
    async def taken(self, owner: str) -> AsyncIterator[None]:
        """Waits for a slot, and holds it."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((owner, turn))
        self._grant()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._held -= Counter([owner])  # forgets who holds none
            self._waiting = [(name, other) for name, other in self._waiting if other is not turn]
            self._grant()

    def _grant(self) -> None:
        while self._held.total() < self._most:
            able = [entry for entry in self._waiting if self._held[entry[0]] < self._most_each]
            if not able:
                return
            owner, turn = first = min(able, key=lambda entry: self._held[entry[0]])
            self._waiting.remove(first)
            if not turn.cancelled():
                self._held[owner] += 1
                turn.set_result(None)
