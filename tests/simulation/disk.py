"""The disk below the daemons: real files, whose every change may be the last of its process, or
fail.

Always: what is done for a dead process has no effect. A full disk refuses what needs room.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from typing import Any

from simulation.host_process import HERE, Died, HostProcess
from simulation.unsynced import SyncedFileSystems, note_sync

import torrentdist.bundle.files.durability

CHANGES = ("rename", "replace", "link", "symlink", "mkdir", "rmdir", "unlink", "remove", "truncate", "ftruncate",
           "write", "pwrite", "utime", "chmod")  # fmt: skip
NEED_ROOM = frozenset({"write", "pwrite", "mkdir", "link", "symlink", "open", "rename", "replace"})
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
STATES = {"broken": errno.EIO, "read-only": errno.EROFS}


def replacements() -> list[tuple[Any, str, Any]]:
    """Returns what stands for the functions of `os` that change a disk."""
    changed = [(os, name, _guarded(name, getattr(os, name))) for name in CHANGES]
    sync = _guarded("fsync", note_sync)
    changed += [(os, "open", _guarded_open(os.open)), (os, "statvfs", _statvfs(os.statvfs))]
    stream = _guarded_stream(io.open)
    changed += [(io, "open", stream), (builtins, "open", stream)]
    library = (torrentdist.bundle.files.durability, "_libc", SyncedFileSystems)
    return [*changed, (os, "fsync", sync), (os, "fdatasync", sync), library]


def _count_effect(process: HostProcess, name: str) -> None:
    if not process.alive:
        raise Died
    if process.effects_left is not None:
        process.effects_left -= 1
        if process.effects_left < 0:
            process.die()
            raise Died
    _count_failure(process)
    if (code := STATES.get(process.disk)) is not None:
        raise OSError(code, os.strerror(code))
    if process.disk == "full" and name in NEED_ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _count_failure(process: HostProcess) -> None:
    """Fails once, at the call that the story chose. Reading calls count, too."""
    if process.fails_after is not None:
        process.fails_after -= 1
        if process.fails_after < 0:
            process.fails_after = None
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def _guarded(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def act(*args: Any, **kwargs: Any) -> Any:
        process = HERE.get()
        _count_effect(process, name)
        note = None if process.names is None else process.names.before(name, args, kwargs)
        result = real(*args, **kwargs)
        if note is not None:
            note()
        return result

    return act


def _guarded_open(real: Callable[..., int]) -> Callable[..., int]:
    make, again = _guarded("open", real), _guarded("reopen", real)

    def act(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_CREAT:
            return int(make(path, flags, *args, **kwargs))
        if flags & WRITES:
            return int(again(path, flags, *args, **kwargs))
        _count_failure(HERE.get())
        return real(path, flags, *args, **kwargs)

    return act


def _guarded_stream(real: Callable[..., Any]) -> Callable[..., Any]:
    make = _guarded("open", real)

    def act(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, int):
            return real(file, mode, *args, **kwargs)
        if any(char in mode for char in "wxa+"):
            return make(file, mode, *args, **kwargs)
        _count_failure(HERE.get())
        return real(file, mode, *args, **kwargs)

    return act


def _statvfs(real: Callable[[Any], os.statvfs_result]) -> Callable[[Any], os.statvfs_result]:
    """Returns the room of a disk that is always the same size, whatever the test's own disk has."""

    def act(path: Any) -> os.statvfs_result:
        found = list(real(path))
        blocks = 1 << 20
        free = 0 if HERE.get().disk == "full" else blocks // 2
        found[0] = found[1] = 4096
        found[2:5] = [blocks, free, free]
        return os.statvfs_result(found)

    return act
