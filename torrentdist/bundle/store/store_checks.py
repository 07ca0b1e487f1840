"""Checks that a bundle is still as it was published, whenever a part of it is handed out.

Always: a file with its marked identity is not read. A file with a different identity is hashed, and
gets a new mark if its bytes are right. Damage is only reported.
Never: renew the mark of a file that was written a moment ago, since another write in the same tick
of the clock would be invisible.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from torrentdist.bundle.content_check import Damage, check_links, verify_content, verify_files, verify_packs
from torrentdist.bundle.files.durability import disk_failures, is_shortage
from torrentdist.bundle.hashing import Progress
from torrentdist.bundle.metafile import Metafile, Symlink
from torrentdist.bundle.store.object_index import FileMark, changed_files, look_at_files
from torrentdist.bundle.store.objects import Objects
from torrentdist.bundle.store.store_state import StoreState
from torrentdist.model.errors import TorrentdistError, required
from torrentdist.model.ids import Digest

REMEMBERED = 16
"""Number of bundles whose marks stay in memory. Reading an index of ten thousand files takes 30
ms."""
READ_ALONG = 64 * 1024 * 1024
"""Bytes of other files in doubt that are read with one. They take a tenth of a second."""
MOST_SHARERS = 8
"""Bundles that get new marks when one is removed that shares files with them. The files of others
are read when they are handed out."""
TICK_NS = 1_000_000_000
"""In nanoseconds; longer than one step of any file system's clock."""


@dataclass
class _Known:
    marks: dict[str, FileMark]
    links: tuple[Symlink, ...] | None = None
    """None until the metafile has been read for them."""


class StoreChecks:
    """The checks of one store. Several threads may share it."""

    def __init__(self, objects: Objects, state: StoreState, metafile: Callable[[Digest], Metafile | None]) -> None:
        self._objects = objects
        self._state = state
        self._metafile = metafile
        self._lock = threading.Lock()
        self._known: OrderedDict[Digest, _Known] = OrderedDict()

    def forget(self, digest: Digest) -> None:
        """Forgets the marks of a bundle whose index is rewritten, or that is removed."""
        with self._lock:
            self._known.pop(digest, None)

    def check_files(self, digest: Digest) -> list[Damage]:
        """Checks every file, but no symlink."""
        return self._check(digest, None, links=False)

    def check(self, digest: Digest, paths: Collection[str] | None) -> list[Damage]:
        """Checks these files (None: all).

        A path that is not a file may lead through symlinks, so then all symlinks are checked too.
        """
        return self._check(digest, paths, links=True)

    def look(self, digest: Digest, paths: Collection[str] | None) -> list[Damage] | None:
        """Like `check`, but reads no file. None: a file has to be read."""
        try:
            damage, doubtful = self._look(digest, paths, links=True)
        except TorrentdistError as exc:
            return [_damaged_head(exc)]
        return damage if damage or not doubtful else None

    def is_file(self, digest: Digest, path: str) -> bool:
        return not path.startswith("../") and path in self._recall(digest).marks

    def verify(self, digest: Digest, progress: Progress | None) -> list[Damage]:
        """Reads every byte. Files that are right get their current identity as the new mark."""
        content = self._objects.arriving_content(digest)
        try:
            marks = self._recall(digest).marks
            meta = self._metafile_of(digest)
        except TorrentdistError as exc:
            return [_damaged_head(exc)]
        before = look_at_files(content, marks)
        damage = [*verify_content(meta, content, progress), *verify_packs(meta, content.parent)]
        if not damage and before != marks:
            with self._state.alone(digest):
                self._renew(digest, content, before)
        return damage

    def note_links(self, digest: Digest, paths: Collection[str]) -> set[int]:
        """Renews the marks of files that have another name now. A link changes the ctime of a file;
        one that differs in anything else keeps its mark, and is read when it is handed out. Returns
        the inodes of the files."""
        return self._note(digest, lambda marks: paths)

    def note_inodes(self, digest: Digest, inodes: Set[int]) -> None:
        """Renews the marks of files that share these inodes with the files of another bundle, which
        were linked."""
        self._note(digest, lambda marks: [path for path, mark in marks.items() if mark.inode in inodes])

    def shared_inodes(self, digest: Digest, paths: Collection[str]) -> set[int]:
        """Returns the inodes of these files that have another name, too."""
        content, inodes = self._objects.arriving_content(digest), set[int]()
        for place in (top / path for path in paths for top in (content, content.parent)):
            with suppress(OSError):
                found = os.lstat(place)
                inodes |= {found.st_ino} if found.st_nlink > 1 else set()
        return inodes

    def holds_inodes(self, digest: Digest, inodes: Set[int]) -> bool:
        """Whether a file of this bundle has one of these inodes. A bad index holds none."""
        with suppress(TorrentdistError):
            return any(mark.inode in inodes for mark in self._recall(digest).marks.values())
        return False

    @contextmanager
    def removing(self, digest: Digest, sharers: Iterable[Digest]) -> Iterator[None]:
        """Surrounds the removal of a bundle. The files that these others share with it lose a name,
        and get new marks if they were as they were published just before."""
        sound: dict[Digest, set[str]] = {}
        with suppress(TorrentdistError):  # The index of an arriving or damaged bundle tells nothing.
            inodes = {mark.inode for mark in self._recall(digest).marks.values()}
            sound = {other: self._sound(other, inodes) for other in islice(sharers, MOST_SHARERS)}
        self.forget(digest)
        yield
        for other, paths in sound.items():
            with self._state.if_free(other) as is_free, suppress(TorrentdistError):
                if is_free and paths:
                    self._note_alone(other, lambda marks, paths=paths: paths)  # type: ignore[misc]

    def _sound(self, digest: Digest, inodes: Set[int]) -> set[str]:
        """Returns the files with these inodes that are as they were published."""
        marks = self._recall(digest).marks
        shared = [path for path, mark in marks.items() if mark.inode in inodes]
        found = look_at_files(self._objects.arriving_content(digest), shared)
        return {path for path, mark in found.items() if marks[path] == mark}

    def _note(self, digest: Digest, choose: Callable[[Mapping[str, FileMark]], Collection[str]]) -> set[int]:
        with self._state.alone(digest):
            return self._note_alone(digest, choose)

    def _note_alone(self, digest: Digest, choose: Callable[[Mapping[str, FileMark]], Collection[str]]) -> set[int]:
        if self._state.get(digest) is None:  # It was removed meanwhile.
            return set()
        known = self._recall(digest)
        found = look_at_files(self._objects.arriving_content(digest), choose(known.marks))
        new = {path: mark for path, mark in found.items() if _is_linked(known.marks.get(path), mark)}
        if new:
            self._save(digest, known, new)
        return {mark.inode for mark in new.values()}

    def _check(self, digest: Digest, paths: Collection[str] | None, *, links: bool) -> list[Damage]:
        try:
            damage, doubtful = self._look(digest, paths, links=links)
            return damage if damage or not doubtful else self._read(digest, doubtful)
        except TorrentdistError as exc:
            return [_damaged_head(exc)]

    def _look(self, digest: Digest, paths: Collection[str] | None, *, links: bool) -> tuple[list[Damage], list[str]]:
        """Returns the damage that is certain, and the doubtful files."""
        content, known = self._objects.arriving_content(digest), self._recall(digest)
        marks = [known.marks[path] for path in (known.marks if paths is None else paths) if path in known.marks]
        links = links and (paths is None or len(marks) < len(paths))
        damage = self._link_damage(digest, known, content) if links else []
        changes = list(changed_files(content, marks))
        damage += [Damage(change.path, change.reason) for change in changes if change.certain]
        return damage, [change.path for change in changes if not change.certain]

    def _read(self, digest: Digest, doubtful: Collection[str]) -> list[Damage]:
        """Reads the doubtful files, one thread at a time. Other threads with the same doubt then
        see the new marks."""
        content = self._objects.arriving_content(digest)
        with self._state.alone(digest):
            if self._state.get(digest) is None:
                return [Damage(".", "it was set aside")]
            known = self._recall(digest)
            paths = {change.path for change in changed_files(content, [known.marks[path] for path in doubtful])}
            if not paths:
                return []
            paths |= self._others_in_doubt(content, known, paths)
            before = look_at_files(content, paths)
            damage = self._read_paths(digest, content, paths)
            if not damage:
                self._renew(digest, content, before)
            return damage

    def _others_in_doubt(self, content: Path, known: _Known, paths: Collection[str]) -> set[str]:
        """Returns some of the other files that have to be read too. A version that is linked or
        removed puts all files that it shares in doubt, and each new mark costs a whole index."""
        room = READ_ALONG - sum(known.marks[path].size for path in paths)
        found: set[str] = set()
        for change in changed_files(content, known.marks.values()) if room > 0 else ():
            size = known.marks[change.path].size
            if not change.certain and change.path not in paths and size <= room:
                room -= size
                found.add(change.path)
        return found

    def _read_paths(self, digest: Digest, content: Path, paths: Collection[str]) -> list[Damage]:
        meta = self._metafile_of(digest)
        return [*verify_files(meta, content, paths), *verify_packs(meta, content.parent, paths)]

    def _renew(self, digest: Digest, content: Path, before: Mapping[str, FileMark]) -> None:
        """Marks files as they were `before` their bytes were read and found right.

        A file that was written since then keeps its old mark.
        """
        after, latest = look_at_files(content, before), time.time_ns() - TICK_NS
        new = {path: mark for path, mark in before.items() if after.get(path) == mark and mark.ctime_ns < latest}
        known = self._recall(digest)
        if self._state.get(digest) is None or new.items() <= known.marks.items():
            return
        self._save(digest, known, new)

    def _save(self, digest: Digest, known: _Known, new: Mapping[str, FileMark]) -> None:
        marks = {**known.marks, **new}
        with suppress(OSError):  # Without room for it, the bytes are read again the next time.
            self._objects.mark_anew(digest, list(marks.values()))
            self._remember(digest, _Known(marks, known.links))

    def _link_damage(self, digest: Digest, known: _Known, content: Path) -> list[Damage]:
        if known.links is None:
            known.links = self._metafile_of(digest).symlinks
        return check_links(known.links, content)

    def _metafile_of(self, digest: Digest) -> Metafile:
        return required(self._metafile(digest), "corrupt", path="metafile", detail="it is missing")

    def _recall(self, digest: Digest) -> _Known:
        with self._lock:
            if (known := self._known.get(digest)) is not None:
                self._known.move_to_end(digest)
                return known
        with disk_failures(self._objects.directory(digest)):
            found = _Known({mark.path: mark for mark in self._objects.marks(digest)})
        self._remember(digest, found)
        return found

    def _remember(self, digest: Digest, known: _Known) -> None:
        with self._lock:
            self._known[digest] = known
            self._known.move_to_end(digest)
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)


def _is_linked(mark: FileMark | None, found: FileMark) -> bool:
    """Whether a file differs from its mark in its ctime alone."""
    if mark is None or mark == found:
        return False
    return (mark.size, mark.mtime_ns, mark.inode) == (found.size, found.mtime_ns, found.inode)


def _damaged_head(error: TorrentdistError) -> Damage:
    """Returns the damage of an index or a metafile. Any other error does not concern this bundle,
    and a shortage of descriptors or memory does not either."""
    if error.code not in ("corrupt", "disk_error") or is_shortage(error.__cause__):
        raise error
    return Damage("metafile" if error.code == "corrupt" else "index", error.message)
