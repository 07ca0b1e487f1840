"""Processes as /proc shows them: identified by pid and time of birth, and found below their
ancestor.

Always: a pid together with its birth names one process for ever.
Never: import anything but the standard library.
"""

import contextlib
import os
import signal


def birth_of(pid: int) -> int | None:
    """Returns when a process was started, in ticks since boot; None if there is none, or it is
    dead."""
    fields = _stat_of(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def descendants_of(root: int) -> set[int]:
    """Returns every process below `root`, including dead ones that were not reaped yet."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat_of(int(name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(name))
    found: set[int] = set()
    below = list(children.get(root, []))
    while below:
        pid = below.pop()
        found.add(pid)
        below.extend(children.get(pid, []))
    return found


def kill_descendants() -> None:
    """Sends SIGKILL to every process below this one. New ones may appear meanwhile: repeat until
    none is left."""
    for pid in descendants_of(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # dead already
            os.kill(pid, signal.SIGKILL)


def _stat_of(pid: int) -> list[str] | None:
    """Returns the fields from the state on. The name before it may contain anything."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None
