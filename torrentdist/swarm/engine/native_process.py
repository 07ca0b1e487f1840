"""Tunes the process that libtorrent runs in: one small heap for all threads, and threads that give
way.

libtorrent takes blocks in one thread and frees them in another, which leaves holes in the C heap.
Always: nothing happens where the system lacks glibc or thread priorities. Only threads that begin
inside `giving_way` are touched.
Never: be called by anything but the engine, since this is about the whole process.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_libc: Final = ctypes.CDLL(None)
_M_ARENA_MAX: Final = -8
_TASKS: Final = Path("/proc/self/task")


def share_one_heap() -> None:
    """Makes all threads use one heap. With one heap each, 4 GiB that pass through leave 50 to 100
    MiB of holes; the transfer is as fast with one."""
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Returns free memory to the system. Takes milliseconds, in which other threads wait for the
    heap."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


@contextmanager
def giving_way(nice: int) -> Iterator[None]:
    """Makes native threads that begin inside this block nicer than this process, by 0 (equal) to
    19.

    Jobs, commands and our own event loop then get a processor before libtorrent does.
    """
    before = _threads()
    yield
    nice += os.getpriority(os.PRIO_PROCESS, 0)
    for thread in _threads() - before:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(thread), nice)


def _threads() -> set[str]:
    return set(os.listdir(_TASKS)) if _TASKS.is_dir() else set()
