"""Puts new content in the place of old content.

Always: after a crash or an error, the old or the new content is in that place. On a file system
that cannot exchange two names, a crash between two renames leaves the old content at `aside`.
Never: delete anything.
"""

import ctypes
import errno
import os
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


def swap(built: Path, dest: Path, aside: Path) -> None:
    """Moves `built` to `dest`, and what was at `dest` to `aside`."""
    if not _exchange(built, dest):
        swap_in_steps(built, dest, aside)
    else:
        os.rename(built, aside)


def swap_in_steps(built: Path, dest: Path, aside: Path) -> None:
    """Moves the old content aside, and the new to its place. If the new cannot be moved, the old is
    restored."""
    os.rename(dest, aside)
    try:
        os.rename(built, dest)
    except BaseException:
        os.rename(aside, dest)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges two names in one step. Returns False if the file system cannot."""
    if not hasattr(_libc, "renameat2"):
        return False
    if _libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(other))
