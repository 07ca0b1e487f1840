"""The immutable values that a store returns. Each is true at the time of the query."""

from pathlib import Path

import msgspec

from torrentdist.model.ids import Digest


class StoredBundle(msgspec.Struct, frozen=True):
    digest: Digest
    size: int
    files: int
    content: Path
    """The read-only directory of the bundle. The path becomes invalid when the bundle is
    unpublished."""
    pinned: bool
    used_at: float
    published_at: float


class Arrival(msgspec.Struct, frozen=True):
    """A bundle that was begun and is not published."""

    digest: Digest
    size: int
    """Bytes of the whole bundle. 0 if its metafile is damaged: begin it again, or abandon it."""
    set_aside: str | None
    """Why it was unpublished; None if it was never published."""


class RoomNeeded(msgspec.Struct, frozen=True):
    """The room that a bundle takes."""

    size: int
    shared: int = 0
    """Bytes whose blocks on disk it shares with other bundles, so that they need no room."""
    packs: int = 0
    """Bytes of its packs, which lie beside the files that are made from them."""

    @property
    def on_disk(self) -> int:
        return self.size + self.packs - self.shared


class Shortage(msgspec.Struct, frozen=True):
    """Bytes that are missing. A negative number counts bytes that are left."""

    on_disk: int
    by_limit: int

    @property
    def most(self) -> int:
        return max(self.on_disk, self.by_limit)


class StoreUsage(msgspec.Struct, frozen=True):
    published: int
    published_bytes: int
    arriving: int
    arriving_bytes: int
    """Bytes reserved for arriving bundles, written or not."""
    limit_bytes: int
    reserve_bytes: int
    free_bytes: int


class Pruned(msgspec.Struct, frozen=True):
    removed: tuple[StoredBundle, ...]
    kept: int

    @property
    def freed_bytes(self) -> int:
        return sum(stored.size for stored in self.removed)
