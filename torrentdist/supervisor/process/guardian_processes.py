"""Finds the guardians of runs by lock and start time, signals them, and detects that they are gone.

Always: a signal reaches only the intended process, never another process with the same pid. A run
counts as gone only on positive evidence: its guardian said so, or no guardian is alive and no
process of the run remains. `sweep` and the functions that take a directory block: call them in
threads. The others read one small file of /proc.
"""

import contextlib
import errno
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec

from torrentdist.launcher.process_tree import birth_of
from torrentdist.launcher.run.run_files import LOCK, RUN_MARK, SPEC, STATUS
from torrentdist.model.wire.view import decode_json


class GuardianStatus(msgspec.Struct, frozen=True):
    """The status file that a guardian writes."""

    run: str
    state: str
    guardian: int
    guardian_birth: int
    init: int = 0
    """Pid of the first process of the run."""
    init_birth: int | None = None
    pid: int = 0
    """Pid of the worker itself."""
    namespaces: bool = False
    exit_code: int | None = None
    reason: str = ""
    """Why the run was ended: stop, kill or lease; empty if it ended by itself."""
    detail: str = ""
    at: float = 0.0

    @property
    def gone(self) -> bool:
        return self.state == "gone"


class Living(msgspec.Struct, frozen=True):
    """A guardian that is alive."""

    pid: int
    birth: int


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def read_status(home: Path, run: str) -> GuardianStatus | None:
    """Returns the last status that the guardian of exactly this run wrote."""
    try:
        status = decode_json((home / STATUS).read_bytes(), GuardianStatus)
    except (OSError, msgspec.MsgspecError):
        return None
    return status if status.run == run else None


def living(home: Path, run: str) -> Living | None:
    """Returns the guardian of a run that a previous supervisor started, if it is alive."""
    status = read_status(home, run)
    if status is None or status.gone or birth_of(status.guardian) != status.guardian_birth:
        return None
    return Living(status.guardian, status.guardian_birth)


def forbid_starts(home: Path) -> bool:
    """Prevents any guardian of this home from starting a worker from now on. Returns False while a
    guardian is active."""
    if not home.is_dir():
        return True
    try:
        fd = os.open(home / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):  # The lock cannot be tried while the disk is full.
            return False
        # A disk that cannot be written. No guardian starts there either.
        fd = os.open(home / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(OSError):
            (home / SPEC).unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def pidfd_of(process: Living) -> int | None:
    """Returns a descriptor that becomes readable when the process ends, or None if it has ended.
    The caller closes it."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    if birth_of(process.pid) == process.birth:
        return fd
    os.close(fd)
    return None


def send(process: Living, number: signal.Signals) -> bool:
    """Sends a signal to exactly this process, if it is still alive. Returns False if it may not be
    sent yet: a guardian that a launcher has just started is still root."""
    try:
        fd = pidfd_of(process)
        if fd is None:
            return True
        try:
            signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return True


def reap(process: Living) -> None:
    """Reaps the process if it was our own child and has ended."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def left_of(run: str, status: GuardianStatus | None = None) -> list[int]:
    """Returns the processes of a run whose guardian is gone.

    They are found by the mark in their environment, by the worker's session, or as the run's init,
    whose end also ends everything in its namespace.
    """
    mark = f"{RUN_MARK}={run}".encode()
    session = 0 if status is None else status.pid
    found = [pid for pid in _pids() if _is_of(pid, mark, session)]
    if status is not None and status.init_birth is not None and birth_of(status.init) == status.init_birth:
        found.append(status.init)
    return found


def sweep(run: str, status: GuardianStatus | None = None) -> bool:
    """Kills the remaining processes of a run. Returns True if there are none. We may not kill a
    process of another user: the kernel ends it with its namespace."""
    left = left_of(run, status)
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return not left


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _is_of(pid: int, mark: bytes, session: int) -> bool:
    if pid == os.getpid() or birth_of(pid) is None:
        return False
    try:
        if session and os.getsid(pid) == session:
            return True
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
