"""What happened on this host, as files of JSON lines that Spark or anybody else can read while the daemon runs.

Always holds: a file that is still written to has a name that starts with `_`; it gets its real one by a rename, when it
is closed or, after a crash, at the next start. What is kept is bounded by size and age. Must not do: fail, or make the
daemon wait: an event that cannot be written is lost, and the log says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import structlog

from torrentdist.model.configuration.config import EventsConfig
from torrentdist.model.events import EventsDropped, Fact, Writer, line_of

log = structlog.get_logger(__name__)

LOOK_SECS = 1.0
MAX_PER_SECOND = 2000
"""Above this something is wrong, and the files would push out what explains it."""
COMPLAIN_SECS = 60.0
OPEN = "_"
PREFIX, SUFFIX = "events-", ".jsonl"


class _Closed(NamedTuple):
    path: Path
    size: int
    at: float


class EventLog:
    """Open it when the data directory is ours alone. Everything is called in one event loop."""

    def __init__(
        self,
        directory: Path,
        config: EventsConfig,
        *,
        node: str,
        role: str,
        rack: str,
        clock: Callable[[], float | None],
    ) -> None:
        self._dir = directory
        self._config = config
        self._server_now = clock
        self._writer = Writer(node=node, role=role, rack=rack, run=secrets.token_hex(6))
        self._seq = 0
        self._fd: int | None = None
        self._path = directory
        self._size = 0
        self._opened = 0.0
        self._second, self._this_second, self._dropped = 0, 0, 0
        self._complained = float("-inf")
        if config.enabled:
            self._attempt(self._recover)

    @property
    def progress_secs(self) -> float:
        return self._config.progress_secs

    def emit(self, fact: Fact) -> None:
        if not self._config.enabled or self._too_many():
            return
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._write(EventsDropped(count=dropped))
        self._write(fact)

    async def run(self) -> None:
        """Close files when they are large or old enough, and delete what is kept no longer."""
        while True:
            await asyncio.sleep(LOOK_SECS)
            if self._fd is not None and self._is_due():
                await asyncio.to_thread(self._attempt, self._publish_and_trim, *self._let_go())

    def close(self) -> None:
        if self._fd is not None:
            self._attempt(self._publish_and_trim, *self._let_go())

    def _is_due(self) -> bool:
        return self._size >= self._config.file_bytes or time.monotonic() - self._opened >= self._config.file_secs

    def _too_many(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._this_second = second, 0
        self._this_second += 1
        if self._this_second > MAX_PER_SECOND:
            self._dropped += 1
            return True
        return False

    def _write(self, fact: Fact) -> None:
        now, server_now = time.time(), self._server_now()
        clock = None if server_now is None else round(server_now - now, 6)
        self._seq += 1
        line = line_of(fact, self._writer, seq=self._seq, at=now, clock=clock)
        try:
            if self._fd is None:
                self._open()
            assert self._fd is not None
            # One write a line: a crash tears the last one at most.
            self._size += os.write(self._fd, line)
        except OSError as exc:
            self._complain(exc)

    def _open(self) -> None:
        self._dir.mkdir(exist_ok=True)
        name = f"{PREFIX}{self._writer.node}-{time.time_ns()}{SUFFIX}"
        self._path = self._dir / f"{OPEN}{name}"
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size, self._opened = 0, time.monotonic()

    def _let_go(self) -> tuple[int, Path]:
        assert self._fd is not None
        fd, self._fd = self._fd, None
        return fd, self._path

    def _publish_and_trim(self, fd: int, path: Path) -> None:
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        _publish(path)
        self._trim()

    def _recover(self) -> None:
        """What the process before us had open when it died; its last line may be torn, which readers bear."""
        for path in sorted(self._dir.glob(f"{OPEN}{PREFIX}*{SUFFIX}")):
            _publish(path)
        self._trim()

    def _trim(self) -> None:
        closed = []
        for path in self._dir.glob(f"{PREFIX}*{SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):  # whoever ships them may take them away
                status = path.stat()
                closed.append(_Closed(path, status.st_size, status.st_mtime))
        for path in surplus(closed, time.time(), self._config):
            path.unlink(missing_ok=True)

    def _attempt(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except OSError as exc:
            self._complain(exc)

    def _complain(self, exc: OSError) -> None:
        if time.monotonic() - self._complained > COMPLAIN_SECS:
            self._complained = time.monotonic()
            log.warning("events are lost", path=str(self._dir), reason=exc.strerror or str(exc))


def surplus(closed: list[_Closed], now: float, config: EventsConfig) -> list[Path]:
    """Which files go: the oldest ones, until the rest is neither too old nor too much."""
    room = config.keep_bytes
    going = []
    for path, size, at in sorted(closed, key=lambda file: file.at, reverse=True):
        room -= size
        if room < 0 or now - at > config.keep_secs:
            going.append(path)
    return going


def _publish(path: Path) -> None:
    if path.stat().st_size == 0:
        path.unlink()
    else:
        path.rename(path.with_name(path.name.removeprefix(OPEN)))
