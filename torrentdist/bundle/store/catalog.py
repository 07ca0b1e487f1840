"""What the names of bundles mean and which bundles are pinned, as this host heard it last, in catalog.json.

Always holds: a change is on disk before the call returns, so that a download goes on without ZooKeeper and a pin
outlives a crash; a change that could not be written did not happen. Must not do: look at objects. A name says what a
bundle id means, not that its bytes are here. ZooKeeper is the truth: what is bound last counts.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from torrentdist.bundle.files.durability import write_durably
from torrentdist.bundle.store.disk_failures import disk_failures
from torrentdist.bundle.store.json_files import Saved, decode_saved, encode_saved
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest


class _Saved(Saved, frozen=True, kw_only=True):
    bindings: dict[BundleId, Digest] = msgspec.field(default_factory=dict)
    pins: frozenset[Digest] = frozenset()


class Catalog:
    """Threads may share it: readers never wait for the disk, writers take turns."""

    def __init__(self, path: Path, saved: _Saved) -> None:
        self._path = path
        self._saved = saved
        self._writing = threading.Lock()
        self._closed = False

    @classmethod
    def open(cls, path: Path) -> Catalog:
        """The catalog in `path`, empty if there is none. One that cannot be read is refused: its pins would be lost."""
        with disk_failures(path):
            if not path.exists():
                return cls(path, _Saved())
            return cls(path, decode_saved(path, path.read_bytes(), _Saved))

    def close(self) -> None:
        """Refuse changes from now on: the file may be another process's soon."""
        with self._writing:
            self._closed = True

    def bindings(self) -> Mapping[BundleId, Digest]:
        return MappingProxyType(self._saved.bindings)

    def lookup(self, bundle: BundleId) -> Digest | None:
        return self._saved.bindings.get(bundle)

    def names(self, digest: Digest) -> set[BundleId]:
        return {bundle for bundle, bound in self._saved.bindings.items() if bound == digest}

    def pins(self) -> frozenset[Digest]:
        return self._saved.pins

    def bind(self, bundle: BundleId, digest: Digest) -> None:
        with self._writing:
            if self.lookup(bundle) != digest:
                self._write(bindings={**self._saved.bindings, bundle: digest})

    def unbind(self, bundle: BundleId) -> None:
        with self._writing:
            if bundle in self._saved.bindings:
                self._write(bindings={b: d for b, d in self._saved.bindings.items() if b != bundle})

    def pin(self, digest: Digest) -> None:
        with self._writing:
            if digest not in self._saved.pins:
                self._write(pins=self._saved.pins | {digest})

    def unpin(self, digest: Digest) -> None:
        with self._writing:
            if digest in self._saved.pins:
                self._write(pins=self._saved.pins - {digest})

    def _write(self, *, bindings: dict[BundleId, Digest] | None = None, pins: frozenset[Digest] | None = None) -> None:
        if self._closed:
            raise TorrentdistError("closing", what="the store")
        saved = _Saved(
            bindings=self._saved.bindings if bindings is None else bindings,
            pins=self._saved.pins if pins is None else pins,
        )
        with disk_failures(self._path):
            write_durably(self._path, encode_saved(saved))
        self._saved = saved
