"""What a store knows without its disk: which bundles are published, which are arriving, what their
names are.

Always: every answer comes from memory, so an event loop may ask. A `Store` is such a view too, for
the thread that changes it. Never: I/O. Everything that reads or writes a disk is a method of
`Store`, which only threads call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torrentdist.bundle.store.catalog import Catalog
from torrentdist.bundle.store.store_state import StoreState
from torrentdist.bundle.store.store_values import StoredBundle, StoreUsage
from torrentdist.model.ids import BundleId, Digest, StoreId


@dataclass(frozen=True, slots=True)
class StoreMemory:
    """What a store and its views share."""

    data_dir: Path
    id: StoreId
    state: StoreState
    catalog: Catalog


class StoreView:
    """The questions that an event loop may ask of a store."""

    def __init__(self, memory: StoreMemory) -> None:
        self.memory = memory
        self.data_dir = memory.data_dir
        self.id: StoreId = memory.id

    def published(self) -> dict[Digest, StoredBundle]:
        return self.memory.state.published()

    def published_digests(self) -> frozenset[Digest]:
        """Returns the same object for as long as nothing is published or unpublished."""
        return self.memory.state.published_digests()

    def get(self, digest: Digest) -> StoredBundle | None:
        """The published bundle of this digest."""
        return self.memory.state.get(digest)

    def arriving(self) -> list[Digest]:
        """Bundles that were begun and are not published. After a crash: `begin` them again, or
        `abandon` them."""
        return list(self.memory.state.arriving())

    def usage(self) -> StoreUsage:
        """The room that is taken. `free_bytes` is as old as the store's last look at the disk."""
        return self.memory.state.usage()

    def object_dir(self, digest: Digest) -> Path:
        """The directory of an arriving or published bundle; its content is below `content/`."""
        return self.data_dir / "objects" / digest

    def lookup(self, bundle: BundleId) -> Digest | None:
        """The digest that this name stands for."""
        return self.memory.catalog.lookup(bundle)

    def names(self, digest: Digest) -> set[BundleId]:
        """The names that stand for this digest."""
        return self.memory.catalog.names(digest)

    def bindings(self) -> Mapping[BundleId, Digest]:
        """Every name with the digest that it stands for."""
        return self.memory.catalog.bindings()
