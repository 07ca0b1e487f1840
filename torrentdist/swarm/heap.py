"""Keeps the C heap of a process with a session small. libtorrent takes blocks in one thread and frees them in another.

Always holds: without glibc nothing happens. Must not do: be called by anybody but the engine, since it is for the
whole process.
"""

from __future__ import annotations

import ctypes
from typing import Final

_libc: Final = ctypes.CDLL(None)
_M_ARENA_MAX: Final = -8


def share_one_heap() -> None:
    """One heap for all threads. With one for each, the holes of 4 GiB that passed through are 50 to 100 MiB for good;
    the transfer is as fast with one."""
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return what is free to the system. Takes milliseconds; other threads that need the heap wait for it."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)
