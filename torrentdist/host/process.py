"""The life of a daemon process: start, run until told to stop, stop within a limit.

Always holds: the first SIGTERM or SIGINT stops cleanly; a second one, or `shutdown_secs` without an end, forces the
exit. A part of the daemon that dies takes the whole process down with its error, and so does a loop that is stuck:
nothing limps on half alive.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from typing import Protocol

import structlog

from torrentdist.host.watchdog import Watchdog
from torrentdist.model.errors import TorrentdistError

log = structlog.get_logger(__name__)

FORCED = 128 + signal.SIGTERM


class Daemon(Protocol):
    async def start(self) -> None: ...

    async def failed(self) -> None:
        """Return, or raise, when a part that must run has ended."""

    async def stop(self) -> None: ...


async def _live(daemon: Daemon, shutdown_secs: float) -> None:
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
    stuck = Watchdog()
    waiting = asyncio.create_task(told.wait())
    starting = asyncio.create_task(daemon.start())
    try:
        await asyncio.wait({waiting, starting}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            return
        starting.result()
        stuck.start()
        failing = asyncio.create_task(daemon.failed())
        await asyncio.wait({waiting, failing}, return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            failing.result()
        failing.cancel()
    finally:
        waiting.cancel()
        await daemon.stop()
        stuck.stop()


def run_daemon(daemon: Daemon, *, shutdown_secs: float) -> None:
    """Run until a signal; raises what the daemon failed with."""
    try:
        asyncio.run(_live(daemon, shutdown_secs))
    except TorrentdistError:
        raise
    except Exception:
        log.exception("the daemon failed")
        sys.stderr.flush()
        raise
