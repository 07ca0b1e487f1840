"""Ends a daemon whose event loop is stuck. Otherwise another thread would keep its ZooKeeper
session alive, and other daemons would count on it.

Always: only time in which this process could run counts, so that a suspended process is not ended.
Never: clean up. Workers go on or end under their guardians, and a service manager restarts the
daemon.
"""

import asyncio
import faulthandler
import os
import sys
import threading
from collections.abc import Callable

from torrentdist.log import get_logger
from torrentdist.model.errors import EXIT_BUG

log = get_logger()

LOOK_SECS = 1.0
PATIENCE = 20
"""Number of consecutive checks without a reaction of the loop before the daemon ends."""


def give_up() -> None:
    """Ends the process after printing the stack of every thread."""
    log.error("the event loop is stuck, so this daemon ends", looks=PATIENCE)
    sys.stderr.flush()
    faulthandler.dump_traceback(all_threads=True)
    os._exit(EXIT_BUG)


class Watchdog:
    """Watches the running loop from a thread of its own."""

    def __init__(
        self, patience: int | None = None, look_secs: float = LOOK_SECS, end: Callable[[], None] = give_up
    ) -> None:
        self._patience = PATIENCE if patience is None else patience
        self._look_secs = look_secs
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._lives = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        self._lives.set()
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        missed = 0
        while not self._over.wait(self._look_secs):
            missed = 0 if self._lives.is_set() else missed + 1
            if missed >= self._patience:
                return self._end()
            if missed == 0:
                self._lives.clear()
                try:
                    self._loop.call_soon_threadsafe(self._lives.set)
                except RuntimeError:  # The loop is closed.
                    return None
        return None
