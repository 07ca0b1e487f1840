"""What a store tells about itself: immutable, as of the moment it was asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torrentdist.model.ids import Digest


@dataclass(frozen=True, slots=True)
class StoredBundle:
    """A published bundle."""

    digest: Digest
    size: int
    files: int
    content: Path
    """The bundle's directory, read-only. The path ends with the publication, so nothing is ever served past it."""
    pinned: bool
    used_at: float
    published_at: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """An object that was begun and is not published."""

    digest: Digest
    size: int
    """Of the whole bundle; 0 if its metafile on disk is damaged: begin it again, or abandon it."""
    set_aside: str | None
    """Why it was unpublished, if it ever was published."""


@dataclass(frozen=True, slots=True)
class StoreUsage:
    published: int
    published_bytes: int
    arriving: int
    arriving_bytes: int
    """Reserved for what is arriving, whether or not it has been written yet."""
    limit_bytes: int
    reserve_bytes: int
    free_bytes: int
    """Free on the disk, for anybody."""


@dataclass(frozen=True, slots=True)
class Pruned:
    removed: tuple[StoredBundle, ...]
    kept: int

    @property
    def freed_bytes(self) -> int:
        return sum(stored.size for stored in self.removed)
