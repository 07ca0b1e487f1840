"""Holes of files: found with the file system's help, and made where a file holds nothing but zeros.

Always: a file reads the same before and after. Where the file system knows no holes, nothing happens.
Never: read what the file system knows to be a hole.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator

_libc = ctypes.CDLL(None, use_errno=True)
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01


def data_ranges(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Start and end of every stretch of a file that is no hole."""
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as exc:
            if exc.errno == errno.ENXIO:  # a hole to the end
                return
            if exc.errno != errno.EINVAL:
                raise
            yield end, size
            return
        end = min(size, os.lseek(fd, start, os.SEEK_HOLE))
        yield start, end


def punch(fd: int, start: int, length: int) -> bool:
    """Turn a stretch of zeros into a hole; whether the file system can."""
    done = _libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_long(start), ctypes.c_long(length))
    return bool(done == 0)
