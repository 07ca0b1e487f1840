"""Shares what few can have at once among those who want it, such as the fetches of uploads.

Always: nobody holds more than a share, and whoever holds the fewest comes first; among equals, they
take turns. So one sender's uploads, however many, never keep another's waiting.
Never: know what the slots are for.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SharedSlots:
    def __init__(self, most: int, most_each: int) -> None:
        self._most = most
        self._most_each = most_each
        self._held: Counter[str | None] = Counter()
        self._waiting: list[tuple[str | None, asyncio.Future[None]]] = []

    def _may_hold(self, owner: str | None) -> bool:
        return owner is None or self._held[owner] < self._most_each

    def are_wanted(self, owner: str) -> bool:
        """Whether a slot of this owner would go to somebody who waits, maybe for the same owner: a
        client that has died would else keep its owner waiting."""
        is_full = self._held.total() >= self._most
        return any(name == owner or (is_full and self._may_hold(name)) for name, _ in self._waiting)

    @asynccontextmanager
    async def taken(self, owner: str | None) -> AsyncIterator[None]:
        """Waits for a slot, and holds it. `owner`: None: no share."""
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
            able = [entry for entry in self._waiting if self._may_hold(entry[0])]
            if not able:
                return
            owner, turn = first = min(able, key=lambda entry: self._held[entry[0]])
            self._waiting.remove(first)
            self._waiting.sort(key=lambda entry: entry[0] == owner)  # the owner's next request waits behind all others
            if not turn.cancelled():
                self._held[owner] += 1
                turn.set_result(None)
