"""Makes changes on disk survive a crash: fsync of files and directories, one syncfs for many files.

Always: when a function returns, its change is on disk as far as the kernel can promise.
Never: call these functions on an event loop; every one of them blocks.
"""

import ctypes
import errno
import os
import secrets
from pathlib import Path

from torrentdist.model.errors import TorrentdistError

_libc = ctypes.CDLL(None, use_errno=True)
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def sync_filesystem(path: Path) -> None:
    """Writes all data of the file system of `path` to disk, with one call."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not hasattr(_libc, "syncfs"):
            os.sync()
        elif _libc.syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(fd)


def fsync_dir(path: Path) -> None:
    """Makes the names in a directory durable after a rename, link or unlink."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_durably(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Writes a whole file. After a crash it has the old content or the new one, never a mixture."""
    temporary = path.parent / f".{path.name[:64]}.{secrets.token_hex(6)}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_dir(path.parent)


def disk_failure(error: OSError, path: Path, needed: int = 0) -> TorrentdistError:
    """Translates an error of the operating system about `path` into `disk_full` or `disk_error`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TorrentdistError("disk_full", path=str(path), needed=needed, free=_free_bytes(path))
    return TorrentdistError("disk_error", path=str(path), detail=error.strerror or str(error))


def is_shortage(error: BaseException | None) -> bool:
    """Whether the system had no descriptor or memory left. Such an error says nothing about the
    file."""
    return isinstance(error, OSError) and error.errno in _SHORTAGES


def _free_bytes(path: Path) -> int:
    for place in (path, *path.parents):
        try:
            found = os.statvfs(place)
        except OSError:
            continue
        return found.f_bavail * found.f_frsize
    return 0
