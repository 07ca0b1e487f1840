"""The oracle outside of a resource group: it sees in files who works on what, and trusts no member.

There are two ways to look. `Shift`: a member holds a lock on the resource's file for as long as it
works; a second holder is an overlap. A process that dies loses its locks. `act`: each act is done
under a lock, after a last check that it is still allowed; an act with a smaller fencing number than
an earlier one is an overlap. Only `act` suits processes that are paused: a paused process keeps its
lock, and its next act must be refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path


class Oracle:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def overlaps(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / "overlaps").read_text().splitlines()
        return []

    def accuse(self, what: str) -> None:
        with open(self.directory / "overlaps", "a") as file:
            file.write(what + "\n")

    def acts(self, resource: str) -> int:
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / f"{resource}.acts").read_text().count("\n")
        return 0

    def act(self, resource: str, who: str, fence: int, allowed: Callable[[], bool]) -> None:
        place = os.open(self.directory / f"{resource}.acts", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not allowed():
                    return
                size = os.fstat(place).st_size
                last = os.pread(place, 200, max(0, size - 200)).decode().splitlines()[-1:]
                before = int(last[0].split()[0]) if last else 0
                if fence < before:
                    self.accuse(f"{who} acts on {resource} by {fence} after {last}")
                os.write(place, f"{fence} {who}\n".encode())
        finally:
            os.close(place)


class Shift:
    """One member's work on some resources, from its start to its end."""

    def __init__(self, oracle: Oracle, who: str) -> None:
        self._oracle = oracle
        self._who = who
        self._locks: dict[str, int] = {}

    def begin(self, resources: Iterable[str]) -> None:
        for resource in resources:
            lock = os.open(self._oracle.directory / f"{resource}.lock", os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(lock, 100, 0).decode()
                self._oracle.accuse(f"{self._who} starts on {resource}, which {holder} works on")
            os.truncate(lock, 0)
            os.pwrite(lock, self._who.encode(), 0)
            self._locks[resource] = lock

    def end(self) -> None:
        for lock in self._locks.values():
            os.close(lock)
        self._locks.clear()
