"""libtorrent's threads give way to whatever else wants a processor: jobs, commands, and our own event loop.

Always holds: only threads that begin meanwhile are touched, and those that they begin later are as they are. Must not
do: fail where the system has no such thing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")


@contextmanager
def giving_way(nice: int) -> Iterator[None]:
    """What is begun in here by others than Python is so much nicer than we are: 0 is like us, 19 is the most."""
    before = _threads()
    yield
    nice += os.getpriority(os.PRIO_PROCESS, 0)
    for thread in _threads() - before:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(thread), nice)


def _threads() -> set[str]:
    return set(os.listdir(_TASKS)) if _TASKS.is_dir() else set()
