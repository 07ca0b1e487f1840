"""Finds out which blocks on disk files share, on file systems that can clone: XFS and Btrfs.

Always: a file system that cannot say counts as one that shares nothing.
Never: write into a file that is not its own.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

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


def own_bytes(top: Path, *, clones: bool) -> int:
    """Returns the bytes on disk that only the files below `top` use: what deleting them frees.

    `clones`: whether files may share blocks there. They may be linked in any case.
    """
    total = 0
    for folder, _, names in os.walk(top):
        for name in names:
            with suppress(OSError):
                total += _own_bytes_of(os.path.join(folder, name), clones)
    return total


def _own_bytes_of(path: str, clones: bool) -> int:
    found = os.lstat(path)
    if found.st_nlink > 1:
        return 0
    if not clones:
        return found.st_blocks * 512
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        total, start = 0, 0
        while True:
            buffer = bytearray(_HEAD.size + _AT_ONCE * _EXTENT.size)
            _HEAD.pack_into(buffer, 0, start, 2**64 - 1 - start, _SYNC, 0, _AT_ONCE, 0)
            fcntl.ioctl(fd, _FIEMAP, buffer)
            count = _HEAD.unpack_from(buffer)[3]
            if not count:
                return total
            for number in range(count):
                logical, _, length, _, _, flags, *_ = _EXTENT.unpack_from(buffer, _HEAD.size + number * _EXTENT.size)
                total += 0 if flags & _SHARED else length
            if flags & _LAST:
                return total
            start = logical + length
    finally:
        os.close(fd)
