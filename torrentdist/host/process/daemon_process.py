"""Runs a daemon process: starts the daemon, waits for a signal, and stops within a time limit.

Always: the first SIGTERM or SIGINT stops cleanly; a second one, or `shutdown_secs` without an end,
forces the exit. If the disk has no room for the start, the start is repeated until it has. If a
part of the daemon ends or its event loop is stuck, the whole process ends: it never runs on with a
part missing.
"""

import asyncio
import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from torrentdist.host.event_loop.daemon_loop import DaemonLoop
from torrentdist.host.event_loop.short_collections import short_collections
from torrentdist.host.event_loop.slow_callbacks import watched_if_asked
from torrentdist.host.event_loop.watchdog import Watchdog
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError

log = get_logger()

FORCED = 128 + signal.SIGTERM
ROOM_SECS = 1.0


class Daemon(Protocol):
    async def start(self) -> None: ...

    async def failed(self) -> None:
        """Returns or raises when a required part of the daemon has ended."""

    async def stop(self) -> None: ...


class _NoRoom(Exception):
    """The start failed for lack of disk space. The cause names the place."""


async def _live(make: Callable[[], Daemon], shutdown_secs: float) -> None:
    told = _told_to_stop(shutdown_secs)
    complained = False
    while not told.is_set():
        daemon, asked = make(), asyncio.create_task(told.wait())
        try:
            await _live_once(daemon, asked)
            return
        except _NoRoom as exc:
            if not complained:
                log.error("waiting for room on the disk to start", reason=str(exc.__cause__))
            complained = True
        finally:
            asked.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ROOM_SECS):
                await told.wait()


def _told_to_stop(shutdown_secs: float) -> asyncio.Event:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()

    def on_signal(number: int) -> None:
        if told.is_set():
            log.warning("forced to stop", signal=signal.Signals(number).name)
            os._exit(FORCED)
        log.info("stopping", signal=signal.Signals(number).name)
        told.set()
        # Use a thread: it works even if the event loop hangs.
        watchdog = threading.Timer(shutdown_secs, os._exit, (FORCED,))
        watchdog.daemon = True
        watchdog.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return told


async def _live_once(daemon: Daemon, told: asyncio.Task[bool]) -> None:
    """Runs one daemon until a signal arrives or the daemon fails. Raises _NoRoom if it could not
    start for lack of disk space."""
    stuck = Watchdog()
    starting = asyncio.create_task(daemon.start())
    try:
        await asyncio.wait({told, starting}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            return
        try:
            starting.result()
        except (TorrentdistError, OSError) as exc:
            if _lacks_room(exc):
                raise _NoRoom from exc
            raise
        stuck.start()
        failing = asyncio.create_task(daemon.failed())
        await asyncio.wait({told, failing}, return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            failing.result()
        failing.cancel()
    finally:
        await daemon.stop()
        stuck.stop()


def _lacks_room(exc: TorrentdistError | OSError) -> bool:
    if isinstance(exc, TorrentdistError):
        return exc.code == "disk_full"
    return exc.errno in (errno.ENOSPC, errno.EDQUOT)


def run_daemon(make: Callable[[], Daemon], *, shutdown_secs: float) -> None:
    """Runs until a signal arrives, or raises the daemon's failure. Each attempt to start calls
    `make` for a new daemon."""
    try:
        with watched_if_asked(), short_collections(), asyncio.Runner(loop_factory=DaemonLoop) as runner:
            runner.run(_live(make, shutdown_secs))
    except TorrentdistError:
        raise
    except Exception:
        log.exception("the daemon failed")
        sys.stderr.flush()
        raise
