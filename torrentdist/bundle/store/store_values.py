"""The immutable values that a store returns. Each is true at the time of the query."""

from dataclasses import dataclass
from pathlib import Path

from torrentdist.model.ids import Digest


@dataclass(frozen=True, slots=True)
class StoredBundle:
    digest: Digest
    size: int
    files: int
    content: Path
    """The read-only directory of the bundle. The path becomes invalid when the bundle is
    unpublished."""
    pinned: bool
    used_at: float
    published_at: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """A bundle that was begun and is not published."""

    digest: Digest
    size: int
    """Bytes of the whole bundle. 0 if its metafile is damaged: begin it again, or abandon it."""
    set_aside: str | None
    """Why it was unpublished; None if it was never published."""


@dataclass(frozen=True, slots=True)
class RoomNeeded:
    """The room that a bundle takes."""

    size: int
    shared: int = 0
    """Bytes whose blocks on disk it shares with other bundles, so that they need no room."""
    packs: int = 0
    """Bytes of its packs, which lie beside the files that are made from them."""

    @property
    def on_disk(self) -> int:
        return self.size + self.packs - self.shared


@dataclass(frozen=True, slots=True)
class Shortage:
    """Bytes that are missing. A negative number counts bytes that are left."""

    on_disk: int
    by_limit: int

    @property
    def most(self) -> int:
        return max(self.on_disk, self.by_limit)


@dataclass(frozen=True, slots=True)
class StoreUsage:
    published: int
    published_bytes: int
    arriving: int
    arriving_bytes: int
    """Bytes reserved for arriving bundles, written or not."""
    limit_bytes: int
    reserve_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Pruned:
    removed: tuple[StoredBundle, ...]
    kept: int

    @property
    def freed_bytes(self) -> int:
        return sum(stored.size for stored in self.removed)
