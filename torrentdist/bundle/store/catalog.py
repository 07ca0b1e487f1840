"""What each bundle id stands for and which bundles are pinned, as this host last learned.

`catalog.json` holds everything. Bindings that changed since it was written are lines of
`catalog.log`, so that the cost of a change does not depend on the number of bundles.
Always: a change is on disk before the call returns, so that a download can continue without
ZooKeeper and a pin survives a crash. A change that could not be written did not happen.
Never: look at objects. A bound id does not mean that the bytes are here. ZooKeeper is the
authority: the last binding counts.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from torrentdist.bundle.files.durability import disk_failures, fsync_dir, write_durably
from torrentdist.bundle.store.json_files import Saved, decode_saved, encode_saved
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.view import decode_json

LONGEST_LOG = 1000
"""Number of lines in catalog.log after which catalog.json is rewritten, or the number of bindings
if that is larger."""


class _SavedCatalog(Saved, frozen=True, kw_only=True):
    bindings: dict[BundleId, Digest] = msgspec.field(default_factory=dict)
    pins: frozenset[Digest] = frozenset()


class _Binding(msgspec.Struct, frozen=True):
    """One line of catalog.log."""

    bundle: BundleId
    digest: Digest | None
    """None: the id is no longer bound."""
    crc: int | None = None
    """The checksum of the other fields. None: an older release wrote this line."""


def _crc(change: _Binding) -> int:
    return zlib.crc32(f"{change.bundle} {change.digest}".encode())


def _is_whole(line: bytes) -> bool:
    """Whether these bytes are a line that was written to its end."""
    with suppress(msgspec.MsgspecError):
        change = decode_json(line, _Binding)
        return change.crc == _crc(change)
    return False


class Catalog:
    """A thread-safe catalog. Readers never wait for the disk; writers take turns."""

    def __init__(self, path: Path, saved: _SavedCatalog, log: _BindingLog) -> None:
        self._path = path
        self._log = log
        self._bindings: dict[BundleId, Digest] = {}
        self._names: dict[Digest, set[BundleId]] = {}
        self._pins = saved.pins
        self._writing = threading.Lock()
        self._closed = False
        for bundle, digest in saved.bindings.items():
            self._now_bound(bundle, digest)
        for change in log.read():
            self._now_bound(change.bundle, change.digest)

    @classmethod
    def open(cls, path: Path) -> Catalog:
        """Reads a catalog; empty if there is none. A damaged catalog is refused, not replaced."""
        with disk_failures(path):
            saved = decode_saved(path, path.read_bytes(), _SavedCatalog) if path.exists() else _SavedCatalog()
            return cls(path, saved, _BindingLog(path.with_suffix(".log")))

    def close(self) -> None:
        """Refuses changes from now on: the file may soon belong to another process."""
        with self._writing:
            if not self._closed and self._log.lines:
                with suppress(TorrentdistError):  # The log still contains every change.
                    self._write_all(self._pins)
            self._closed = True

    def bindings(self) -> Mapping[BundleId, Digest]:
        """Returns a copy of all bindings."""
        return self._bindings.copy()

    def lookup(self, bundle: BundleId) -> Digest | None:
        return self._bindings.get(bundle)

    def names(self, digest: Digest) -> set[BundleId]:
        """Returns the ids that stand for this content."""
        return self._names.get(digest, set()).copy()

    def pins(self) -> frozenset[Digest]:
        return self._pins

    def bind(self, bundle: BundleId, digest: Digest) -> None:
        self._change(_Binding(bundle, digest))

    def unbind(self, bundle: BundleId) -> None:
        self._change(_Binding(bundle, None))

    def pin(self, digest: Digest) -> None:
        with self._writing:
            if digest not in self._pins:
                self._write_all(self._pins | {digest})

    def unpin(self, digest: Digest) -> None:
        with self._writing:
            if digest in self._pins:
                self._write_all(self._pins - {digest})

    def _change(self, change: _Binding) -> None:
        with self._writing:
            if self.lookup(change.bundle) == change.digest:
                return
            self._require_open()
            with disk_failures(self._path):
                self._log.append(change)
            self._now_bound(change.bundle, change.digest)
            if self._log.lines > max(LONGEST_LOG, len(self._bindings)):
                with suppress(TorrentdistError):  # The change is in the log. The next one tries again.
                    self._write_all(self._pins)

    def _now_bound(self, bundle: BundleId, digest: Digest | None) -> None:
        before = self._bindings.pop(bundle, None)
        if before is not None:
            self._names[before].discard(bundle)
            if not self._names[before]:
                del self._names[before]
        if digest is not None:
            self._bindings[bundle] = digest
            self._names.setdefault(digest, set()).add(bundle)

    def _write_all(self, pins: frozenset[Digest]) -> None:
        """Writes catalog.json and clears the log.

        A crash in between does no harm: the log repeats what catalog.json says.
        """
        self._require_open()
        with disk_failures(self._path):
            write_durably(self._path, encode_saved(_SavedCatalog(bindings=self._bindings, pins=pins)), mode=0o600)
            self._pins = pins
            self._log.clear()

    def _require_open(self) -> None:
        if self._closed:
            raise TorrentdistError("closing", what="the store")


class _BindingLog:
    """A log with one line per change of a binding.

    A loss of power may leave the beginning of a last line, or zeros where its blocks were not
    written. Such a line was never acknowledged, so it is dropped. Any other damage is refused.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = 0
        self.lines = 0

    def read(self) -> list[_Binding]:
        if not self._path.exists():
            return []
        *lines, rest = self._path.read_bytes().split(b"\n")
        if lines and not rest and b"\0" in lines[-1]:
            lines.pop()
        changes = [self._change(line) for line in lines]
        if b"\0" not in rest and _is_whole(rest[:-1]):
            raise self._damaged("a line has no end")
        self._end, self.lines = sum(len(line) + 1 for line in lines), len(lines)
        return changes

    def _change(self, line: bytes) -> _Binding:
        try:
            change = decode_json(line, _Binding)
        except msgspec.MsgspecError as exc:
            raise self._damaged(str(exc)) from exc
        if change.crc not in (None, _crc(change)):
            raise self._damaged(f"the line of {change.bundle} has another checksum")
        return change

    def _damaged(self, detail: str) -> TorrentdistError:
        return TorrentdistError("disk_error", path=str(self._path), detail=f"damaged: {detail}")

    def append(self, change: _Binding) -> None:
        """Writes after the last complete line, over the rest of a failed write."""
        line = msgspec.json.encode(msgspec.structs.replace(change, crc=_crc(change))) + b"\n"
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, self._end)
            os.lseek(fd, self._end, os.SEEK_SET)
            with os.fdopen(os.dup(fd), "wb") as out:
                out.write(line)
            os.fsync(fd)
        finally:
            os.close(fd)
        if self.lines == 0:
            fsync_dir(self._path.parent)
        self._end += len(line)
        self.lines += 1

    def clear(self) -> None:
        there = self._path.exists()
        if there:
            self._path.unlink()
        self._end = self.lines = 0  # before the next step, which may fail: the file is gone
        if there:
            fsync_dir(self._path.parent)
