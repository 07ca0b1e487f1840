"""Ends a daemon whose event loop is stuck: its ZooKeeper session is kept alive by another thread,
and with it places that nobody fills any more.

Always holds: only time in which this process could run counts, so that one which was suspended is
not blamed for it. Must not do: clean up. Workers end or run on under their guardians, and a service
manager starts the daemon again.
"""

from __future__ import annotations

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
"""Looks in a row without a sign of life."""


def give_up() -> None:
    """With what every thread was doing, for whoever has to find out why."""
    log.error("the event loop is stuck, so this daemon ends", looks=PATIENCE)
    sys.stderr.flush()
    faulthandler.dump_traceback(all_threads=True)
    os._exit(EXIT_BUG)


class Watchdog:
    """Over the running loop, on a thread of its own."""

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
                except RuntimeError:  # it is closed
                    return None
        return None
