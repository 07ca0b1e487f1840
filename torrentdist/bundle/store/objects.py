"""The objects of a store on disk, and the steps that move one between arriving, published and
removed.

Always: a step is one rename or unlink and is durable before the next, so that `recover` understands
what a crash left. Only objects with a link in `bundles/` are published. Only a deletion order or a
temporary name in `transit/` deletes anything.
Never: decide, lock, or touch a name that is not ours.
Longer than most files: every name and every step of the layout on disk is defined only here.
"""

import os
import re
import secrets
import shutil
import stat
from collections.abc import Set
from contextlib import suppress
from itertools import chain
from pathlib import Path

import msgspec

from torrentdist.bundle.files.deletion import delete
from torrentdist.bundle.files.durability import free_bytes, fsync_dir, is_shortage, sync_filesystem, write_durably
from torrentdist.bundle.store.object_index import FileMark, Head, encode_index, read_head, read_marks
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TEMPORARY = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}|\.torrentdist-[a-z0-9_]+", re.ASCII)
_TORN = re.compile(r"\.(store\.json|catalog\.json|metafile|recipe|index|set-aside)\.[0-9a-f]{12}\.tmp", re.ASCII)
"""Temporary files of `write_durably` that a killed process left unfinished."""


class FoundObjects(msgspec.Struct, frozen=True):
    published: dict[Digest, tuple[Head, float]] = msgspec.field(default_factory=dict)
    """The head of each published object, and the time of its last use."""
    arriving: list[Digest] = msgspec.field(default_factory=list)


class Objects:
    """The directories of a store.

    objects/<digest>/ contains metafile, index, content/, and packs/ if small files are packed.
    bundles/<digest> links to a published object.

    In transit/, `<digest>.<random>` is partly created or partly deleted. The link `<digest>` is the
    order to delete that object: a discard moves the link there from bundles/, which unpublishes the
    object and orders its deletion in one step.
    """

    def __init__(self, data_dir: Path) -> None:
        self._objects = data_dir / "objects"
        self._bundles = data_dir / "bundles"
        self._transit = data_dir / "transit"
        self._left: set[Path] = set()
        """What is out of the store and could not be deleted."""

    def directory(self, digest: Digest) -> Path:
        return self._objects / digest

    def published_content(self, digest: Digest) -> Path:
        """Returns the path for readers. It becomes invalid when the bundle is unpublished."""
        return self._bundles / digest / "content"

    def arriving_content(self, digest: Digest) -> Path:
        return self._objects / digest / "content"

    def _parts(self, digest: Digest) -> list[Path]:
        """Returns the directories with the bytes of a bundle: its files, and its packs."""
        return [self._objects / digest / "content", self._objects / digest / "packs"]

    def metafile(self, digest: Digest) -> Path:
        return self._objects / digest / "metafile"

    def _index(self, digest: Digest) -> Path:
        return self._objects / digest / "index"

    def _note(self, digest: Digest) -> Path:
        return self._objects / digest / "set-aside"

    def _order(self, digest: Digest) -> Path:
        return self._transit / digest

    def _temporary(self, digest: Digest) -> Path:
        return self._transit / f"{digest}.{secrets.token_hex(8)}"

    # opening

    def prepare(self) -> None:
        for path in (self._objects, self._bundles, self._transit):
            path.mkdir(exist_ok=True)
        fsync_dir(self._objects.parent)

    def recover(self) -> FoundObjects:
        """Finishes or undoes what a crash interrupted, and returns the objects found."""
        _remove_torn(self._objects.parent)
        for name in os.listdir(self._transit):
            if _DIGEST.fullmatch(name):
                self._obey(Digest(name))
        for name in os.listdir(self._transit):
            if _TEMPORARY.fullmatch(name):
                delete(self._transit / name)
        for name in os.listdir(self._bundles):
            if _DIGEST.fullmatch(name) and self.is_linked(Digest(name)) and not self.directory(Digest(name)).exists():
                self.unlink(Digest(name))
        found = FoundObjects()
        with os.scandir(self._objects) as entries:
            names = [e.name for e in entries if _DIGEST.fullmatch(e.name) and e.is_dir(follow_symlinks=False)]
        for digest in map(Digest, sorted(names)):
            _remove_torn(self.directory(digest))
            indexed = self.look(digest)
            if indexed is None:
                found.arriving.append(digest)
            else:
                found.published[digest] = indexed
        return found

    def look(self, digest: Digest) -> tuple[Head, float] | None:
        """Returns the head and the last use of a published object.

        An object whose index cannot be read is unpublished.
        """
        if not self.is_linked(digest):
            return None
        try:
            return read_head(self._index(digest)), self._index(digest).stat().st_mtime
        except (OSError, TorrentdistError) as exc:
            if is_shortage(exc):
                raise
        self.unlink(digest)
        return None

    def _obey(self, digest: Digest) -> None:
        order = self._order(digest)
        if not order.is_symlink():
            return
        if self.directory(digest).is_dir() and not self.is_linked(digest):
            taken = self._temporary(digest)
            os.rename(self.directory(digest), taken)
            self._delete_out(taken, order)
        else:
            order.unlink()
            fsync_dir(self._transit)

    # steps

    def create(self, digest: Digest, raw_metafile: bytes) -> None:
        """Creates an empty object with its metafile, completely or not at all."""
        new = self._temporary(digest)
        try:
            (new / "content").mkdir(parents=True)
            write_durably(new / "metafile", raw_metafile)
            fsync_dir(new)
            os.rename(new, self.directory(digest))
        except BaseException:
            with suppress(OSError):
                delete(new)
            raise
        fsync_dir(self._objects)

    def resume(self, digest: Digest, raw_metafile: bytes, kept: Set[str], reserve: int) -> None:
        """Makes an existing object writable. It may be set aside or partly published. Links to the
        files `kept` stay: nobody writes into them. If the object was never complete, copies leave
        `reserve` bytes of the disk free."""
        with suppress(FileNotFoundError):
            self._order(digest).unlink()
            fsync_dir(self._transit)
        _remove_torn(self.directory(digest))
        if self.read_metafile(digest) != raw_metafile:
            write_durably(self.metafile(digest), raw_metafile)
        self.arriving_content(digest).mkdir(exist_ok=True)
        room = None if self._index(digest).exists() else reserve
        for part in self._parts(digest):
            _make_writable(part, self._temporary(digest), {os.path.join(part, path) for path in kept}, room)

    def seal(self, digest: Digest, head: Head, marks: list[FileMark]) -> None:
        """Writes the index and makes the whole object durable."""
        self._note(digest).unlink(missing_ok=True)
        self._index(digest).write_bytes(encode_index(head, marks))
        self.record_use(digest, head.published_at)
        sync_filesystem(self.directory(digest))

    def mark_anew(self, digest: Digest, marks: list[FileMark]) -> None:
        """Replaces the marks of a published object. Its head and last use stay as they are."""
        used_at = self._index(digest).stat().st_mtime
        write_durably(self._index(digest), encode_index(read_head(self._index(digest)), marks))
        self.record_use(digest, used_at)

    def link(self, digest: Digest) -> None:
        new = self._temporary(digest)
        new.symlink_to(_target(digest))
        os.rename(new, self._bundles / digest)
        fsync_dir(self._bundles)

    def unlink(self, digest: Digest) -> None:
        (self._bundles / digest).unlink(missing_ok=True)
        fsync_dir(self._bundles)

    def set_aside(self, digest: Digest, reason: str) -> None:
        """Unpublishes an object, then records the reason if the disk has room for it."""
        self.unlink(digest)
        with suppress(OSError):
            write_durably(self._note(digest), reason.encode())

    def remove(self, digest: Digest) -> None:
        """Removes an object from the store, and deletes it."""
        if self.is_linked(digest):
            os.rename(self._bundles / digest, self._order(digest))
            fsync_dir(self._bundles)
            fsync_dir(self._transit)
        taken, order = self._temporary(digest), self._order(digest)
        os.rename(self.directory(digest), taken)
        try:
            self._delete_out(taken, order)
        except BaseException:
            self._left.update((taken, order))
            raise

    def delete_left(self) -> None:
        """Deletes what a failing disk has left of removed objects, if it can by now."""
        with suppress(KeyError):
            while True:
                path = self._left.pop()
                try:
                    delete(path)
                except OSError:
                    self._left.add(path)
                    return

    def _delete_out(self, taken: Path, order: Path) -> None:
        """Deletes an object that was taken out of the store, and the order to do so."""
        fsync_dir(self._objects)
        fsync_dir(self._transit)
        order.unlink(missing_ok=True)
        fsync_dir(self._transit)
        delete(taken)

    def record_use(self, digest: Digest, at: float) -> None:
        os.utime(self._index(digest), (at, at))

    def read_metafile(self, digest: Digest) -> bytes | None:
        try:
            return self.metafile(digest).read_bytes()
        except FileNotFoundError:
            return None

    # queries

    def is_linked(self, digest: Digest) -> bool:
        try:
            return os.readlink(self._bundles / digest) == _target(digest)
        except OSError:
            return False

    def marks(self, digest: Digest) -> list[FileMark]:
        return read_marks(self._index(digest))

    def set_aside_reason(self, digest: Digest) -> str | None:
        try:
            return self._note(digest).read_text(errors="replace")
        except FileNotFoundError:
            return None

    def written_bytes(self, digest: Digest) -> int:
        """Returns the bytes of an arriving object's content that are on disk already."""
        total = 0
        for folder, _, files in chain.from_iterable(map(os.walk, self._parts(digest))):
            for name in files:
                with suppress(FileNotFoundError):
                    found = os.lstat(os.path.join(folder, name))
                    total += min(found.st_size, found.st_blocks * 512)
        return total


def _target(digest: Digest) -> str:
    return f"../objects/{digest}"


def _remove_torn(folder: Path) -> None:
    for name in os.listdir(folder):
        if _TORN.fullmatch(name):
            (folder / name).unlink()


def _make_writable(content: Path, temporary: Path, kept: Set[str], reserve: int | None) -> None:
    """Copies files that have another link, since a repair must not write into that one. Where a
    copy has no room the link goes, and the file is taken again from where it is. None: no link
    goes, since these may be the last bytes of a bundle."""
    for folder, _, files in os.walk(content):
        os.chmod(folder, os.lstat(folder).st_mode | 0o700)
        for name in files:
            path = os.path.join(folder, name)
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode) or (found.st_nlink > 1 and path in kept):
                continue
            if found.st_nlink > 1 and reserve is not None and free_bytes(content) - reserve < found.st_size:
                os.unlink(path)
                continue
            if found.st_nlink > 1:
                _replace_by_copy(path, temporary)
            os.chmod(path, found.st_mode | 0o600)


def _replace_by_copy(path: str, temporary: Path) -> None:
    try:
        shutil.copyfile(path, temporary)
        os.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
