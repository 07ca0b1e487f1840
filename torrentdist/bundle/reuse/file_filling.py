"""Takes files that are on this host into a bundle that arrives: clones each, and hashes the clone.
Writes and hashes those that came with its metafile.

Always: a file counts as filled only after every byte of it was read from the arriving bundle and
matched the root in its metafile. A clone that does not match is removed again. A source that cannot
be read costs nothing but the attempt.
Never: write into a source, or leave a partly written file when the disk is full.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from torrentdist.bundle import hashing
from torrentdist.bundle.file_tree import FileEntry
from torrentdist.bundle.files import holes
from torrentdist.bundle.files.durability import disk_failure
from torrentdist.bundle.files.file_cloner import FileCloner
from torrentdist.bundle.hashing import FileHash, FileToHash
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.reuse.reuse_plan import KnownFile, held_pieces, with_parts
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest

BATCH_BYTES: Final = 64 * 1024 * 1024
BATCH_FILES: Final = 512
"""Files are cloned and hashed in batches, so that what is hashed was written a moment ago and is
still in memory."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

S = TypeVar("S")
GoOn = Callable[[], bool]
"""Says whether to go on. Asked between two steps of the work."""


class Filling(msgspec.Struct, frozen=True):
    """What an arriving bundle was given from this host."""

    size: int = 0
    """Bytes that are here and verified."""
    have: Sequence[bool] | None = None
    """Whether each piece is here and verified. None: that is not known, and everything found is
    hashed."""
    suspects: frozenset[Digest] = frozenset()
    """Bundles whose content was found to be wrong."""
    sent: int = 0
    """Bytes of `size` that came with the metafile."""


class FilledFiles(msgspec.Struct, frozen=True):
    paths: frozenset[str]
    """Paths of the files whose every byte is here and right."""
    wrong: frozenset[str]
    """Paths within the source of files that were read and have other bytes than they should."""


def fill_files(
    meta: Metafile,
    content: Path,
    source: Path,
    known: Sequence[KnownFile[S]],
    *,
    go_on: GoOn = lambda: True,
    progress: Callable[[int], None] = lambda done: None,
    links: bool = False,
) -> FilledFiles:
    """Takes these files from the directory `source`. Leaves files of the right size as they are:
    they may have arrived before, and are checked later.

    Raises `disk_full` if the disk is full. `progress` is called with the bytes of each file.
    `links`: a file may become a link, since `source` is a bundle of the same store.
    """
    target = _Target(os.fsencode(content))
    cloner, top = FileCloner(links=links), os.fsencode(source)
    paths: set[str] = set()
    wrong: set[str] = set()
    for batch in _batches(known):
        placed = [one for one in batch if target.place(one, top, cloner, go_on)]
        wanted = [FileToHash(target.path(one.file.path), one.file.size) for one in placed]
        hashes = hashing.hash_files(wanted, meta.piece_length, hashing.stopped_unless(go_on))
        try:
            for one, outcome in zip(placed, hashes, strict=True):
                if isinstance(outcome, FileHash) and outcome.root == one.file.root:
                    paths.add(one.file.path)
                    progress(one.file.size)
                else:
                    wrong.add(one.path)
                    target.remove(one.file.path)
        except hashing.HashingStopped:
            for one in placed:
                if one.file.path not in paths:
                    target.remove(one.file.path)
        if not go_on():
            break
    return FilledFiles(frozenset(paths), frozenset(wrong))


def write_sent_files(
    meta: Metafile, content: Path, sent: Mapping[bytes, bytes], *, go_on: GoOn, progress: Callable[[int], None]
) -> list[FileEntry]:
    """Writes the files that came with the metafile and are not packed. Returns those whose bytes
    are right when they are read again. `sent`: their content, by their roots."""
    if not sent:
        return []
    target, packed = _Target(os.fsencode(content)), {file.path for file in meta.packed.files}
    placed = [
        file
        for file in meta.files
        if file.root in sent and file.path not in packed and target.write(file.path, sent[file.root])
    ]
    wanted = [FileToHash(target.path(file.path), file.size) for file in placed]
    found: list[FileEntry] = []
    with suppress(hashing.HashingStopped):
        hashes = hashing.hash_files(wanted, meta.piece_length, hashing.stopped_unless(go_on))
        for file, outcome in zip(placed, hashes, strict=True):
            if isinstance(outcome, FileHash) and outcome.root == file.root:
                found.append(file)
                progress(file.size)
    for file in placed:
        if file not in found:
            target.remove(file.path)
    return found


def settle_pieces(meta: Metafile, content: Path, paths: Set[str], in_packs: Mapping[str, Sequence[bool]]) -> list[bool]:
    """Makes holes of the zeros in the other files, and returns which pieces are here: those of the
    filled files and packs `paths`, those of zeros, and those that `in_packs` says of packs.

    The content must have been empty before the files were filled.
    """
    others = tuple(file for file in meta.wire_files if file.path not in paths and file.path not in in_packs)
    holes.make_sparse(msgspec.structs.replace(meta, wire_files=others), content)
    have = held_pieces(meta.wire_files, meta.piece_length, paths, holes.zero_pieces(meta))
    return with_parts(meta.wire_files, meta.piece_length, have, in_packs)


def _batches(known: Iterable[KnownFile[S]]) -> Iterator[list[KnownFile[S]]]:
    batch: list[KnownFile[S]] = []
    weight = 0
    for one in known:
        batch.append(one)
        weight += one.file.size
        if weight >= BATCH_BYTES or len(batch) >= BATCH_FILES:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch


class _Target:
    """The content of the arriving bundle."""

    def __init__(self, top: bytes) -> None:
        self._top = top
        self._made: set[bytes] = {b""}
        """Directories that are known to be there."""

    def path(self, path: str) -> bytes:
        return self._top + b"/" + path.encode()

    def place(self, one: KnownFile[S], source: bytes, cloner: FileCloner, go_on: GoOn) -> bool:
        """Clones a file. Returns whether that was possible."""
        target = self.path(one.file.path)
        try:
            self._make_directory(one.file.path.encode().rpartition(b"/")[0])
            if not _make_way(target, one.file.size):
                return False
            try:
                for _ in cloner.clone(one.file, source + b"/" + os.fsencode(one.path), target):
                    if not go_on():
                        raise InterruptedError
            except BaseException:
                self.remove(one.file.path)
                raise
        except OSError as exc:
            if exc.errno in _NO_ROOM:
                raise disk_failure(exc, Path(os.fsdecode(self._top)), one.file.size) from exc
            return False
        except TorrentdistError:  # The source is not the file that it should be.
            return False
        return True

    def write(self, path: str, data: bytes) -> bool:
        """Writes a file. Returns whether that was possible."""
        try:
            self._make_directory(path.encode().rpartition(b"/")[0])
            if not _make_way(self.path(path), len(data)):
                return False
            Path(os.fsdecode(self.path(path))).write_bytes(data)
        except OSError as exc:
            self.remove(path)
            if exc.errno in _NO_ROOM:
                raise disk_failure(exc, Path(os.fsdecode(self._top)), len(data)) from exc
            return False
        return True

    def remove(self, path: str) -> None:
        with suppress(OSError):
            os.unlink(self.path(path))

    def _make_directory(self, path: bytes) -> None:
        """Makes a directory and its parents below the top, which must be there."""
        if path in self._made:
            return
        self._make_directory(path.rpartition(b"/")[0])
        try:
            os.mkdir(self._top + b"/" + path, 0o755)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(self._top + b"/" + path).st_mode):
                raise
        self._made.add(path)


def _make_way(target: bytes, size: int) -> bool:
    """Removes a file of another size. Returns whether the place is free."""
    try:
        found = os.lstat(target)
    except FileNotFoundError:
        return True
    if stat.S_ISREG(found.st_mode) and found.st_size == size:
        return False
    os.unlink(target)
    return True


def is_new(content: Path) -> bool:
    """Whether nothing of a bundle has arrived yet."""
    with os.scandir(content) as entries:
        return next(entries, None) is None and not (content.parent / "packs").exists()
