"""Processes that outlive who started them, and how to be sure that a pid is still the same process.

Must not do: signal a process that we did not start; a pid may have been given to another one since.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import msgspec


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A process that we started; `birth` is the kernel's start time of it."""

    role: str
    id: str
    pid: int
    birth: int
    url: str
    gateway: str = ""
    log: str = ""


def birth_of(pid: int) -> int | None:
    """When the process was started, in the kernel's ticks since boot; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def is_alive(process: Started) -> bool:
    return birth_of(process.pid) == process.birth


def send(process: Started, number: signal.Signals) -> None:
    if is_alive(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def wait_gone(processes: list[Started], timeout: float) -> list[Started]:
    """Those that are still there at the deadline."""
    deadline = time.monotonic() + timeout
    while True:
        left = [p for p in processes if is_alive(p)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)
