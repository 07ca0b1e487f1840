"""How many bytes somebody may still push to a host.

Always: one sender leaves a part of the room to all others.
Pure: no I/O.
"""

from typing import Final, Protocol

import msgspec

from torrentdist.bundle.store.store_values import StoreUsage

SHARE: Final = 0.75
"""The part of the room for pushes that one sender may take."""


class PushRoom(msgspec.Struct, frozen=True):
    free: int
    """Bytes that may still be pushed."""
    pushed: int
    """Bytes that were pushed or promised and belong to no bundle yet."""
    own: int
    """Bytes of the sender among them."""

    def left(self, unneeded: int = 0) -> int:
        """Returns the bytes that are left to the sender. `unneeded`: that bundles may give up."""
        room = max(0, self.free + self.pushed + unneeded)
        return min(self.free + unneeded, int(room * SHARE) - self.own)


class StoreRoom(Protocol):
    """The room of the store beside which blobs are kept."""

    async def measure(self) -> StoreUsage:
        """Returns what bundles take, and what is free on the disk."""

    async def unneeded_bytes(self) -> int:
        """Returns the bytes of the bundles that nobody needs."""

    async def give_way(self, needed: int) -> None:
        """Removes such bundles until so many bytes are gone."""
