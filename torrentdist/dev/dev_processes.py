"""Processes that outlive the program that started them, and the lock on their directory.

A process is found again by its pid and birth time, or by a mark in its environment if its starter
died before it noted the pid. Always: a mark is on disk before the first process that carries it.
Never: signal a process that we did not start.
"""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from torrentdist.model.configuration.settings import DEV_MARK
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json

LOCK, STATE = "lock", "state.json"


class StartedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that we started. `birth` is its start time according to the kernel."""

    role: str
    id: str
    pid: int
    birth: int
    url: str
    gateway: str = ""
    log: str = ""


class DevState(msgspec.Struct, kw_only=True):
    """The content of a directory's `state.json`."""

    dir: str
    zookeeper: str
    processes: list[StartedProcess]
    mark: str = ""
    """Every process of this cluster has this mark in its environment."""


def birth_of(pid: int) -> int | None:
    """Returns when a process started, in the kernel's ticks since boot. None if it doesn't
    exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def is_alive(process: StartedProcess) -> bool:
    return birth_of(process.pid) == process.birth


def send(process: StartedProcess, number: signal.Signals) -> None:
    if is_alive(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def wait_gone(processes: list[StartedProcess], timeout: float) -> list[StartedProcess]:
    """Waits until the processes are gone. Returns those that still run at the deadline."""
    deadline = time.monotonic() + timeout
    while True:
        left = [p for p in processes if is_alive(p)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


def variable_of(mark: str, name: str) -> str:
    """Returns NAME=VALUE for the environment of a new process, by which `marked` finds it."""
    return f"{DEV_MARK}={mark}/{name}"


def marked(mark: str) -> Iterator[StartedProcess]:
    """Yields every process on this host that carries the mark."""
    wanted = variable_of(mark, "").encode()
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        birth = birth_of(pid)  # first: if the pid changes hands in between, the next line reads no mark of ours
        with contextlib.suppress(OSError):
            for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if birth is not None and variable.startswith(wanted):
                    name = variable.removeprefix(wanted).decode()
                    yield StartedProcess(role=name.partition("-")[0], id=name, pid=pid, birth=birth, url="")


@contextlib.contextmanager
def locked(directory: Path, wait_secs: float) -> Iterator[None]:
    """Locks the directory: one program at a time starts or stops its processes. Raises
    `dev_running`.

    The descriptor is closed on exec, so no process started meanwhile keeps the lock.
    """
    deadline = time.monotonic() + wait_secs
    fd = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    detail = "another command starts or stops it right now"
                    raise TorrentdistError("dev_running", dir=str(directory), detail=detail) from None
            time.sleep(0.02)
        yield
    finally:
        os.close(fd)


def has_state(directory: Path) -> bool:
    return (directory / STATE).exists()


def read_state(directory: Path) -> DevState:
    """Reads the state of this directory. Raises `not_found` if no cluster was ever started in
    it."""
    try:
        state = decode_json((directory / STATE).read_bytes(), DevState)
    except FileNotFoundError:
        raise TorrentdistError("not_found", what=f"a cluster in {directory}") from None
    state.processes = living(state)
    return state


def save_state(state: DevState) -> None:
    directory = Path(state.dir)
    temporary = directory / f"{STATE}.new"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
    temporary.rename(directory / STATE)


def living(state: DevState) -> list[StartedProcess]:
    """Returns the running processes: those on record, and those found by their mark."""
    recorded = [p for p in state.processes if is_alive(p)]
    known = {p.pid for p in recorded}
    return recorded + [p for p in (marked(state.mark) if state.mark else ()) if p.pid not in known]
