"""Copies single files: as a reflink, else inside the kernel, else through this process.

Always: the new file is this process's own. It holds every byte of the source as it was read, and
keeps its holes. A source that is no regular file of the expected size raises `corrupt`.
Never: make a hard link outside of a store, since a write into one would be a write into the store.
Never wait for a fifo or follow a symlink.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator

from torrentdist.bundle.files.holes import data_ranges
from torrentdist.bundle.metafile import FileEntry
from torrentdist.model.errors import TorrentdistError

FICLONE = 0x40049409
_COPY = 8 * 1024 * 1024
_SMALL = 64 * 1024
"""In bytes. Looking for holes in a smaller file costs more than reading it."""
UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.EPERM, errno.EMLINK, errno.ENOSYS}
"""Errors of a file system or a kernel that lacks a call. Another way is tried next."""


class FileCloner:
    """Clones files from one place to another. It remembers whether reflinks work there, so that the
    attempt does not fail again for every file."""

    def __init__(self, *, links: bool = False) -> None:
        """`links`: a read-only file may be linked where reflinks do not work. Only for two bundles
        of one store, which never writes into a file with several names."""
        self._reflinks = True
        self._links = links

    def clone(self, file: FileEntry, source: bytes, target: bytes) -> Iterator[int]:
        """Creates one file, which must not exist. Yields the bytes of each step."""
        if self._reflinks and file.size:
            if _reflink(file, source, target):
                yield file.size
                return
            self._reflinks = False
        if self._links and file.size and link_file(file, source, target):
            yield file.size
            return
        yield from _copy_small(file, source, target) if file.size <= _SMALL else _copy(file, source, target)


def link_file(file: FileEntry, source: bytes, target: bytes) -> bool:
    """Gives a read-only file a second name. Returns whether that was possible."""
    try:
        found = os.lstat(source)
        is_sealed = stat.S_ISREG(found.st_mode) and not found.st_mode & 0o222
        if not is_sealed or found.st_size != file.size or bool(found.st_mode & 0o100) != file.executable:
            return False
        os.link(source, target, follow_symlinks=False)
        return True
    except OSError as exc:
        if exc.errno not in UNSUPPORTED | {errno.EEXIST, errno.ENOENT}:
            raise
        return False


def _mode(file: FileEntry) -> int:
    return 0o755 if file.executable else 0o644


def _open_pair(file: FileEntry, source: bytes, target: bytes) -> tuple[int, int]:
    from_fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(from_fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size != file.size:
            what = f"it has {found.st_size} bytes" if stat.S_ISREG(found.st_mode) else "it is no file"
            raise TorrentdistError("corrupt", path=file.path, detail=f"{what} instead of {file.size} bytes")
        return from_fd, os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except BaseException:
        os.close(from_fd)
        raise


def _reflink(file: FileEntry, source: bytes, target: bytes) -> bool:
    from_fd, to_fd = _open_pair(file, source, target)
    try:
        fcntl.ioctl(to_fd, FICLONE, from_fd)
        os.fchmod(to_fd, _mode(file))
        return True
    except OSError as exc:
        if exc.errno not in UNSUPPORTED:
            raise
        os.unlink(target)
        return False
    finally:
        os.close(from_fd)
        os.close(to_fd)


def _copy_small(file: FileEntry, source: bytes, target: bytes) -> Iterator[int]:
    """Copies a file with one read and one write."""
    from_fd, to_fd = _open_pair(file, source, target)
    try:
        data = os.read(from_fd, file.size)
        if len(data) < file.size:
            raise TorrentdistError("corrupt", path=file.path, detail="it became shorter while it was copied")
        if os.write(to_fd, data) < file.size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fchmod(to_fd, _mode(file))
    finally:
        os.close(from_fd)
        os.close(to_fd)
    yield file.size


def _copy(file: FileEntry, source: bytes, target: bytes) -> Iterator[int]:
    """Copies the bytes and keeps holes. Yields the bytes of each step."""
    from_fd, to_fd = _open_pair(file, source, target)
    try:
        done = 0
        for start, end in data_ranges(from_fd, file.size):
            yield start - done
            while start < end:
                count = copy_some(from_fd, to_fd, start, start, min(_COPY, end - start))
                if not count:
                    raise TorrentdistError("corrupt", path=file.path, detail="it became shorter while it was copied")
                start += count
                yield count
            done = end
        os.ftruncate(to_fd, file.size)
        yield file.size - done
        os.fchmod(to_fd, _mode(file))
    finally:
        os.close(from_fd)
        os.close(to_fd)


def copy_some(from_fd: int, to_fd: int, start: int, target_start: int, length: int) -> int:
    """Copies some of `length` bytes from one place to another, and returns how many. 0: the source
    ends there."""
    try:
        return os.copy_file_range(from_fd, to_fd, length, offset_src=start, offset_dst=target_start)
    except OSError as exc:
        if exc.errno not in UNSUPPORTED:
            raise
    os.lseek(to_fd, target_start, os.SEEK_SET)
    return os.sendfile(to_fd, from_fd, start, length)
