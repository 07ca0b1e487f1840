"""Writes this host's events to files of JSON lines, which Spark or any other reader can read while
the daemon runs.

Always: the name of an unfinished file starts with `_`. The file is renamed when it is closed or,
after a crash, at the next start. Age and total size of the files are bounded.
Never: fail, or make the daemon wait. An event that cannot be written is lost, and the daemon's log
reports it.
"""

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from torrentdist.log import get_logger
from torrentdist.model.configuration.config import EventsConfig
from torrentdist.model.events import EventsDropped, Fact, Writer, line_of

log = get_logger()

LOOK_SECS = 1.0
IDLE_LOOK_SECS = 5.0
"""The same while no file is open."""
MAX_PER_SECOND = 2000
"""Most events written per second. More would push out the events that explain them."""
COMPLAIN_SECS = 60.0
OPEN = "_"
PREFIX, SUFFIX = "events-", ".jsonl"


class _Closed(NamedTuple):
    path: Path
    size: int
    at: float


class EventLog:
    """Open it once the store is locked. Call all methods in the same event loop."""

    def __init__(
        self,
        directory: Path,
        config: EventsConfig,
        writer: Writer,
        clock: Callable[[], float | None],
    ) -> None:
        """`clock` returns ZooKeeper's time, or None while it is not known."""
        self._dir = directory
        self._config = config
        self._server_now = clock
        self._writer = writer
        self._listeners: list[Callable[[Fact], None]] = []
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

    def subscribe(self, listener: Callable[[Fact], None]) -> None:
        """Calls `listener` with every event from now on, including events that are not written."""
        self._listeners.append(listener)

    def emit(self, fact: Fact) -> None:
        if self._config.enabled and not self._too_many():
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                self._write(EventsDropped(count=dropped))
            self._write(fact)
        for listener in self._listeners:
            listener(fact)

    async def run(self) -> None:
        """Closes files that are large or old enough, and deletes expired ones."""
        while True:
            await asyncio.sleep(IDLE_LOOK_SECS if self._fd is None else LOOK_SECS)
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
            # Write each line separately: then a crash can truncate only the last one.
            written = os.write(self._fd, line)
            if written < len(line):  # The next line would stand behind the half of this one.
                os.ftruncate(self._fd, self._size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._size += written
        except OSError as exc:
            self._complain(exc)

    def _open(self) -> None:
        self._dir.mkdir(mode=0o750, exist_ok=True)
        name = f"{PREFIX}{self._writer.node}-{time.time_ns()}{SUFFIX}"
        self._path = self._dir / f"{OPEN}{name}"
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o640)
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
        """Publishes the files that a crashed process left open. Readers skip a truncated last
        line."""
        for path in sorted(self._dir.glob(f"{OPEN}{PREFIX}*{SUFFIX}")):
            _publish(path)
        self._trim()

    def _trim(self) -> None:
        closed = []
        for path in self._dir.glob(f"{PREFIX}*{SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):  # Another program may move files away.
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
    """Returns the files to delete: the oldest ones, until the rest are within the limits of age and
    size."""
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
