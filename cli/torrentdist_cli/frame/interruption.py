"""Runs a command's coroutine, and ends it properly on a signal.

Always: the first Ctrl-C or SIGTERM cancels the work, which closes its resources within a few
seconds. The second one ends the process at once.
"""

import asyncio
import os
import shlex
import signal
import sys
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from torrentdist.model.errors import TorrentdistError
from torrentdist_cli.frame.failures import say_interrupted
from torrentdist_cli.frame.terminal import say

T = TypeVar("T")

STOP_SECS = 5.0
"""Longest wait for the work to end. A thread that reads a large file cannot be cancelled."""
_SHOW_CURSOR = "\x1b[?25h"


class Interrupted(Exception):
    """A signal ended the command."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class _Stop:
    """The signals of one run."""

    def __init__(self) -> None:
        self.number = 0
        self._watchdog: threading.Timer | None = None

    def on_signal(self, number: int, work: asyncio.Future[Any]) -> None:
        if self.number:
            _force(number)
        self.number = number
        say("stopping; once more to stop at once")
        # Use a thread: it works even if the event loop hangs.
        self._watchdog = threading.Timer(STOP_SECS, _force, (number,))
        self._watchdog.daemon = True
        self._watchdog.start()
        work.cancel()

    def over(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`. Raises Interrupted if a signal ended it."""
    stop = _Stop()
    try:
        return asyncio.run(_until_signal(work, stop))
    except (asyncio.CancelledError, TorrentdistError) as exc:
        if stop.number and (not isinstance(exc, TorrentdistError) or exc.code == "interrupted"):
            raise Interrupted(stop.number) from None
        raise
    finally:
        stop.over()


async def _until_signal(work: Coroutine[Any, Any, T], stop: _Stop) -> T:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.on_signal, number, task)
    return await task


def _force(number: int) -> None:
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), _SHOW_CURSOR.encode())
    say_interrupted(shlex.join(["torrentdist", *sys.argv[1:]]))
    os._exit(128 + number)
