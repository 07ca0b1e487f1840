"""The index of a published object: the identity of each file when its bytes were last verified.

An identity consists of a file's size, times and inode.
Always: the first line, the head, has the total size and the number of files, so that a store with
many bundles opens without reading the rest. A file whose identity matches its mark holds the
verified bytes.
Never: read contents, or call bytes wrong only because the identity is new: a restored backup has
new identities.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from torrentdist.bundle.files.durability import disk_failure, is_shortage
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.store.json_files import Saved, decode_saved, encode_saved
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json

_HEAD_LIMIT = 4096
NOTHING_KNOWN: Final[Mapping[str, os.stat_result]] = {}


class Head(Saved, frozen=True, kw_only=True):
    size: int
    files: int
    published_at: float


class FileMark(msgspec.Struct, frozen=True, array_like=True):
    """The identity of one verified file. A write changes its ctime, which no user can set back."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int = 0
    """0, with an inode of 0, if an older release marked the file."""
    inode: int = 0


class FileChange(NamedTuple):
    """A file whose identity differs from its mark."""

    path: str
    reason: str
    certain: bool
    """True if its bytes must be wrong. If False, they have to be read."""


def marked_files(meta: Metafile) -> Iterator[tuple[str, int]]:
    """Yields the path and size of each file of a bundle, and then of each pack, whose path leads
    out of its content."""
    yield from ((file.path, file.size) for file in meta.files)
    yield from ((file.path, file.size) for file in meta.wire_files if file.is_pack)


def mark_files(
    content: Path, files: Iterable[tuple[str, int]], known: Mapping[str, os.stat_result] = NOTHING_KNOWN
) -> list[FileMark]:
    """Returns the current marks of these files, given as relative path and size.

    Raises `corrupt` if a file is missing or has a different size. `known`: what the system has just
    said of some of them.
    """
    marks = []
    for path, size in files:
        found = known.get(path) or os.lstat(os.path.join(content, path))
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            raise TorrentdistError("corrupt", path=str(content / path), detail=f"it is not a file of {size} bytes")
        marks.append(_mark(path, found))
    return marks


def look_at_files(content: Path, paths: Iterable[str]) -> dict[str, FileMark]:
    """Returns the current marks of the regular files among these paths."""
    marks = {}
    for path in paths:
        with suppress(OSError):
            found = os.lstat(os.path.join(content, path))
            if stat.S_ISREG(found.st_mode):
                marks[path] = _mark(path, found)
    return marks


def _mark(path: str, found: os.stat_result) -> FileMark:
    return FileMark(path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def encode_index(head: Head, marks: list[FileMark]) -> bytes:
    return encode_saved(head) + b"\n" + msgspec.json.encode(marks) + b"\n"


def read_head(path: Path) -> Head:
    with path.open("rb") as file:
        return decode_saved(path, file.readline(_HEAD_LIMIT), Head)


def read_marks(path: Path) -> list[FileMark]:
    with path.open("rb") as file:
        file.readline(_HEAD_LIMIT)
        try:
            return decode_json(file.read(), list[FileMark])
        except msgspec.MsgspecError as exc:
            raise TorrentdistError("disk_error", path=str(path), detail=f"damaged: {exc}") from exc


def changed_files(content: Path, marks: Iterable[FileMark]) -> Iterator[FileChange]:
    """Yields every file whose identity differs from its mark."""
    for mark in marks:
        try:
            found = os.lstat(os.path.join(content, mark.path))
        except OSError as exc:
            if is_shortage(exc):
                raise disk_failure(exc, content / mark.path) from exc
            yield FileChange(mark.path, exc.strerror or repr(exc), certain=True)
            continue
        if not stat.S_ISREG(found.st_mode):
            yield FileChange(mark.path, "not a regular file any more", certain=True)
        elif found.st_size != mark.size:
            yield FileChange(mark.path, f"{found.st_size} bytes, expected {mark.size}", certain=True)
        elif not _is_same(mark, _mark(mark.path, found)):
            yield FileChange(mark.path, "written to after it was published", certain=False)


def _is_same(mark: FileMark, found: FileMark) -> bool:
    if not mark.ctime_ns:
        return mark.mtime_ns == found.mtime_ns
    return mark == found
