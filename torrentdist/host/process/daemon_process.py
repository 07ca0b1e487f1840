"""The life of a daemon process: start, run until told to stop, stop within a limit.

Always holds: the first SIGTERM or SIGINT stops cleanly; a second one, or `shutdown_secs` without an
end, forces the exit. A disk without room for the start ends nothing: it is tried again until there
is room. A part of the daemon that dies takes the whole process down with its error, and so does a
loop that is stuck: nothing limps on half alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from torrentdist.host.process.slow_callbacks import watched_if_asked
from torrentdist.host.process.watchdog import Watchdog
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError

log = get_logger()

FORCED = 128 + signal.SIGTERM
ROOM_SECS = 1.0


class Daemon(Protocol):
    async def start(self) -> None: ...

    async def failed(self) -> None:
        """Return, or raise, when a part that must run has ended."""

    async def stop(self) -> None: ...


class _NoRoom(Exception):
    """Its cause says where."""


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
        # A thread: it fires even when the event loop itself hangs.
        watchdog = threading.Timer(shutdown_secs, os._exit, (FORCED,))
        watchdog.daemon = True
        watchdog.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return told


async def _live_once(daemon: Daemon, told: asyncio.Task[bool]) -> None:
    """Until it is told to stop, or fails; _NoRoom if it could not start for want of it."""
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
    """Run until a signal; raises what the daemon failed with. `make`: for each attempt to start, a
    new one."""
    try:
        with watched_if_asked():
            asyncio.run(_live(make, shutdown_secs))
    except TorrentdistError:
        raise
    except Exception:
        log.exception("the daemon failed")
        sys.stderr.flush()
        raise
