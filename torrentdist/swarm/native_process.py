"""Tunes the process in which libtorrent runs: all threads share one small heap, and its threads
have a low priority.

libtorrent allocates blocks in one thread and frees them in another, which leaves holes in the C
heap.
Always: without glibc or thread priorities, nothing happens. Only threads started inside
`low_priority_threads` are affected.
Never: call this from outside the engine, since it affects the whole process.
"""

import ctypes
import os
import socket
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_libc: Final = ctypes.CDLL(None)
_M_ARENA_MAX: Final = -8
_TASKS: Final = Path("/proc/self/task")
_DESCRIPTORS: Final = Path("/proc/self/fd")


def share_one_heap() -> None:
    """Makes all threads use one heap. With one heap per thread, transferring 4 GiB leaves holes of
    50 to 100 MiB; the speed is the same."""
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_ARENA_MAX, 1)


def return_free_memory() -> None:
    """Returns free memory to the system. Takes milliseconds, during which other threads wait for
    the heap."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


def send_at_once(ports: Collection[int]) -> None:
    """Makes connections that are accepted on these ports send small messages at once.

    Without it the end of a tiny bundle waits 40 ms for an acknowledgement. libtorrent has no
    setting for it, but accepted sockets inherit it from the listening one.
    """
    for name in os.listdir(_DESCRIPTORS) if _DESCRIPTORS.is_dir() else ():
        with suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as found:
                is_listening = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if is_listening and found.getsockname()[1] in ports:
                    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@contextmanager
def low_priority_threads(nice: int) -> Iterator[None]:
    """Gives native threads started inside this block a nice value that is 0 (equal) to 19 above
    that of this process.

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
