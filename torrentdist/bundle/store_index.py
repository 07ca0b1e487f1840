"""The index of a published object: what its files looked like on the day that they were verified.

Always holds: the first line, the head, tells size and count by itself, so that a store of many bundles opens without
reading what lies below. Must not do: read contents; a file that was changed under its size and time is found by
`Store.verify` only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from torrentdist.bundle.store_saved import Saved, decode_saved, encode_saved
from torrentdist.model.errors import TorrentdistError

_HEAD_LIMIT = 4096


class Head(Saved, frozen=True, kw_only=True):
    size: int
    files: int
    published_at: float


class FileMark(msgspec.Struct, frozen=True, array_like=True):
    """One file as it was published: relative path, size, mtime."""

    path: str
    size: int
    mtime_ns: int


_decode_marks = msgspec.json.Decoder(list[FileMark]).decode


def mark_files(content: Path, files: Iterable[tuple[str, int]]) -> list[FileMark]:
    """The marks of the files (relative path, size) as they are now; `corrupt` if one is not of its size."""
    marks = []
    for path, size in files:
        found = os.lstat(os.path.join(content, path))
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            raise TorrentdistError("corrupt", path=str(content / path), detail=f"it is not a file of {size} bytes")
        marks.append(FileMark(path, size, found.st_mtime_ns))
    return marks


def encode_index(head: Head, marks: list[FileMark]) -> bytes:
    return encode_saved(head) + b"\n" + msgspec.json.encode(marks) + b"\n"


def read_head(path: Path) -> Head:
    with path.open("rb") as file:
        return decode_saved(path, file.readline(_HEAD_LIMIT), Head)


def read_marks(path: Path) -> list[FileMark]:
    with path.open("rb") as file:
        file.readline(_HEAD_LIMIT)
        try:
            return _decode_marks(file.read())
        except msgspec.MsgspecError as exc:
            raise TorrentdistError("disk_error", path=str(path), detail=f"damaged: {exc}") from exc


def changed_files(content: Path, marks: Iterable[FileMark]) -> Iterator[tuple[str, str]]:
    """Path and reason of every file that is not as it was marked."""
    for mark in marks:
        try:
            found = os.lstat(os.path.join(content, mark.path))
        except OSError as exc:
            yield mark.path, exc.strerror or repr(exc)
            continue
        if not stat.S_ISREG(found.st_mode):
            yield mark.path, "not a regular file any more"
        elif found.st_size != mark.size:
            yield mark.path, f"{found.st_size} bytes, expected {mark.size}"
        elif found.st_mtime_ns != mark.mtime_ns:
            yield mark.path, "written to after it was published"
