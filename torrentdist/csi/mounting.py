"""The system calls that mount a directory of a bundle, and read what is mounted. All of it blocks.

Always: what is mounted is read-only from its first moment on, without set-user-id programs and
devices. No path is followed out of the bundle, and none is followed twice: directories are held
open. It needs Linux 5.12.
Never: decide anything. publish_plan.py does.
"""

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from torrentdist.csi.mount_table import Mount, parse_mounts
from torrentdist.csi.volume_request import Refusal, VolumeRefused

TABLE = "/proc/self/mountinfo"
_AT_EMPTY_PATH, _OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 0x1000, 1, os.O_CLOEXEC
_OPEN_TREE, _MOVE_MOUNT, _OPENAT2, _MOUNT_SETATTR = 428, 429, 437, 442
"""Numbers of system calls, the same on every processor."""
_MOVE_FROM_EMPTY, _MOVE_TO_EMPTY = 0x4, 0x40
_RDONLY, _NOSUID, _NODEV = 0x1, 0x2, 0x4
_PRIVATE = 1 << 18
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_UMOUNT_NOFOLLOW = 0x8

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


class _How(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]


def read_mounts() -> list[Mount]:
    with open(TABLE, encoding="utf-8", errors="surrogateescape", newline="\n") as table:
        return parse_mounts(table.read())


def mount_content(store: Path, content: str, path: str, target: Path) -> None:
    """Mounts `path` inside the directory `content` of a store at `target`, which is made if it is
    missing. No link leads from the store to its content, whoever may write there."""
    with (
        _opened(store) as all_of_it,
        _beneath(all_of_it, content, _RESOLVE_NO_SYMLINKS) as whole,
        _inside(whole, path) as wanted,
        _cloned(wanted) as tree,
    ):
        target.mkdir(mode=0o750, exist_ok=True)
        with _opened(target) as place:
            _call(_MOVE_MOUNT, tree, b"", place, b"", _MOVE_FROM_EMPTY | _MOVE_TO_EMPTY)


def unmount(target: Path) -> None:
    """Unmounts what is on top at `target`. Raises OSError if somebody still uses it."""
    if _libc.umount2(os.fsencode(target), _UMOUNT_NOFOLLOW) != 0 and ctypes.get_errno() != errno.EINVAL:
        raise _failure(str(target))


def remove_target(target: Path) -> None:
    with suppress(FileNotFoundError):
        target.rmdir()


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _inside(whole: int, path: str) -> Iterator[int]:
    """Opens a directory inside another one. Symlinks are followed within it."""
    with ExitStack() as opened:
        try:
            fd = opened.enter_context(_beneath(whole, path or ".", _RESOLVE_NO_MAGICLINKS))
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EXDEV, errno.ELOOP, errno.ENAMETOOLONG):
                raise
            raise VolumeRefused(Refusal.INVALID, f"the bundle has no directory {path!r}") from exc
        yield fd


@contextmanager
def _beneath(directory: int, path: str, resolve: int) -> Iterator[int]:
    """Opens a directory below another one. No step leads out of that."""
    how = _How(os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, _RESOLVE_BENEATH | resolve)
    fd = _call(_OPENAT2, directory, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _cloned(directory: int) -> Iterator[int]:
    """Yields a mount of the directory that is nowhere yet. It ends with its descriptor unless it
    was moved to a place."""
    tree = _call(_OPEN_TREE, directory, b"", _AT_EMPTY_PATH | _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC)
    try:
        wanted = _MountAttributes(_RDONLY | _NOSUID | _NODEV, 0, _PRIVATE, 0)
        _call(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, ctypes.byref(wanted), ctypes.sizeof(wanted))
        yield tree
    finally:
        os.close(tree)


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise _failure(f"system call {number}")
    return result


def _failure(what: str) -> OSError:
    number = ctypes.get_errno()
    if number == errno.ENOSYS:
        return OSError(number, "this kernel cannot mount bundles: it takes Linux 5.12 or later", what)
    return OSError(number, os.strerror(number), what)
