"""Finds out which blocks on disk files share, on file systems that can clone: XFS and Btrfs.

Always: a file system that cannot say counts as one that shares nothing.
Never: write into a file that is not its own.
"""

from __future__ import annotations

import fcntl
import os
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from torrentdist.bundle.files.file_cloner import FICLONE

_FIEMAP = 0xC020660B
_SYNC = 0x1
_LAST, _SHARED = 0x1, 0x2000
_HEAD = struct.Struct("=QQIIII")
_EXTENT = struct.Struct("=QQQQQIIII")
_AT_ONCE = 200
"""Extents that one call asks for."""


def can_clone(directory: Path) -> bool:
    """Whether files in this directory can share blocks. Tries it with two small files."""
    try:
        with TemporaryDirectory(dir=directory, prefix=".torrentdist-") as place:
            one, other = Path(place, "one"), Path(place, "other")
            one.write_bytes(b"1" * 4096)
            with one.open("rb") as source, other.open("wb") as target:
                fcntl.ioctl(target.fileno(), FICLONE, source.fileno())
            return True
    except OSError:
        return False


class DiskUse(msgspec.Struct, frozen=True):
    """The blocks on disk that some files use."""

    own: int = 0
    """Bytes that no other file uses: what deleting these files frees."""
    shared: Sequence[int] = ()
    """Where the blocks that other files use too begin, each followed by its length, in order."""
    linked: Mapping[int, int] = msgspec.field(default_factory=dict)
    """Bytes of the files that have other names too, by inode."""


def total_bytes(uses: Iterable[DiskUse]) -> int:
    """Returns the bytes that all of these files take together. A shared block counts once."""
    own, linked = 0, dict[int, int]()
    extents: list[tuple[int, int]] = []
    for use in uses:
        own += use.own
        linked.update(use.linked)
        extents += zip(use.shared[::2], use.shared[1::2], strict=True)
    return own + sum(linked.values()) + sum(_merged(extents)[1::2])


def disk_use(*tops: Path, clones: bool) -> DiskUse:
    """Returns what the files below these directories use.

    `clones`: whether files may share blocks there. They may be linked in any case.
    """
    own, linked = 0, dict[int, int]()
    shared: list[tuple[int, int]] = []
    for folder, _, names in chain.from_iterable(map(os.walk, tops)):
        for name in names:
            with suppress(OSError):
                path = os.path.join(folder, name)
                found = os.lstat(path)
                if found.st_nlink > 1:
                    linked[found.st_ino] = found.st_blocks * 512
                elif not clones:
                    own += found.st_blocks * 512
                else:
                    for start, length, is_shared in _extents(path):
                        own += 0 if is_shared else length
                        shared += [(start, length)] if is_shared else []
    return DiskUse(own, _merged(shared), linked)


def _merged(extents: list[tuple[int, int]]) -> array[int]:
    """Returns the extents in order, those that touch or overlap as one."""
    found = array("Q")
    for start, length in sorted(extents):
        if found and start <= found[-2] + found[-1]:
            found[-1] = max(found[-1], start + length - found[-2])
        else:
            found.extend((start, length))
    return found


def _extents(path: str) -> Iterator[tuple[int, int, bool]]:
    """Yields where each extent of a file begins on the disk, its length, and whether it is
    shared."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        start = 0
        while True:
            buffer = bytearray(_HEAD.size + _AT_ONCE * _EXTENT.size)
            _HEAD.pack_into(buffer, 0, start, 2**64 - 1 - start, _SYNC, 0, _AT_ONCE, 0)
            fcntl.ioctl(fd, _FIEMAP, buffer)
            count = _HEAD.unpack_from(buffer)[3]
            if not count:
                return
            for number in range(count):
                logical, place, length, _, _, flags, *_ = _EXTENT.unpack_from(
                    buffer, _HEAD.size + number * _EXTENT.size
                )
                yield place, length, bool(flags & _SHARED)
            if flags & _LAST:
                return
            start = logical + length
    finally:
        os.close(fd)
