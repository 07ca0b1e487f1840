"""Makes changes on disk survive a crash: fsync of files and directories, one syncfs for many
files, and new content in the place of old. Translates disk errors into errors of our table.

Always: when a function returns, its change is on disk as far as the kernel can promise. After a
crash or an error, the old or the new content is in its place. On a file system that cannot
exchange two names, a crash between two renames leaves the old content at `aside`.
Never: call these functions on an event loop, because every one of them blocks; or delete
anything but what write_durably() had begun.
"""

import ctypes
import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torrentdist.model.errors import TorrentdistError

_libc = ctypes.CDLL(None, use_errno=True)
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_BEGUN = re.compile(r"\..{1,64}\.[0-9a-f]{12}\.tmp")


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


def remove_begun(folder: Path) -> None:
    """Removes the files that write_durably() had begun in this directory when its process died.
    Nobody else may write there meanwhile."""
    for name in os.listdir(folder):
        if _BEGUN.fullmatch(name):
            (folder / name).unlink()


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


@contextmanager
def disk_failures(path: Path, *, needed: int = 0) -> Iterator[None]:
    """Raises an OSError of the block as `disk_full` or `disk_error`, with the path that failed."""
    try:
        yield
    except OSError as exc:
        raise _of_disk(exc, path, needed) from exc


def as_failure(error: BaseException, path: Path) -> TorrentdistError:
    """Returns the error of the table for any exception: `disk_full` or `disk_error` for one of the
    operating system, `internal` for a bug. `path`: what it is about if it names no file itself."""
    if isinstance(error, TorrentdistError):
        return error
    if isinstance(error, OSError):
        failure = _of_disk(error, path)
    else:
        failure = TorrentdistError("internal", detail=f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _of_disk(error: OSError, path: Path, needed: int = 0) -> TorrentdistError:
    return disk_failure(error, Path(error.filename) if isinstance(error.filename, str) else path, needed)


def free_bytes(path: Path) -> int:
    """Returns the bytes that an unprivileged process may still write on the disk of `path`."""
    return shutil.disk_usage(path).free


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
