"""What a store knows without reading its disk: published bundles, arriving bundles, and their
names.

Always: every answer comes from memory, so that an event loop may ask. A `Store` is also such a
view, for threads.
Never: do I/O. Everything that reads or writes a disk is a method of `Store`, which only threads
call.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from torrentdist.bundle.store.catalog import Catalog
from torrentdist.bundle.store.store_state import StoreState
from torrentdist.bundle.store.store_values import StoredBundle, StoreUsage
from torrentdist.model.ids import BundleId, Digest, StoreId


class StoreMemory(msgspec.Struct, frozen=True):
    """The state that a store shares with its views."""

    data_dir: Path
    id: StoreId
    state: StoreState
    catalog: Catalog


class StoreView:
    """The queries that an event loop may make to a store."""

    def __init__(self, memory: StoreMemory) -> None:
        self.memory = memory
        self.data_dir = memory.data_dir
        self.id: StoreId = memory.id

    def published(self) -> dict[Digest, StoredBundle]:
        return self.memory.state.published()

    def published_digests(self) -> frozenset[Digest]:
        """Returns the published digests: the same object until one is published or unpublished."""
        return self.memory.state.published_digests()

    def get(self, digest: Digest) -> StoredBundle | None:
        """Returns the published bundle with this digest."""
        return self.memory.state.get(digest)

    def arriving(self) -> list[Digest]:
        """Returns bundles that were begun and are not published. After a crash, `begin` them again
        or `abandon` them."""
        return list(self.memory.state.arriving())

    def usage(self) -> StoreUsage:
        """Returns the room in use. `free_bytes` is from the store's last measurement of the
        disk."""
        return self.memory.state.usage()

    def object_dir(self, digest: Digest) -> Path:
        """Returns the directory of an arriving or published bundle; its content is below
        `content/`."""
        return self.data_dir / "objects" / digest

    def lookup(self, bundle: BundleId) -> Digest | None:
        """Returns the digest to which this name is bound."""
        return self.memory.catalog.lookup(bundle)

    def names(self, digest: Digest) -> set[BundleId]:
        """Returns the names that are bound to this digest."""
        return self.memory.catalog.names(digest)

    def bindings(self) -> Mapping[BundleId, Digest]:
        """Returns every name with its digest."""
        return self.memory.catalog.bindings()
