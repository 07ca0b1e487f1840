"""Runs a command's work with a client of the masters, for reads and changes, and ends it
properly on a signal. It says on stderr when it waits, and when an answer may be out of date.

Always: the first Ctrl-C or SIGTERM cancels the work, which closes its resources within a few
seconds. The second one ends the process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shlex
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from torrentdist.model.errors import TorrentdistError
from torrentdist_cli.frame.command import Session
from torrentdist_cli.frame.failures import say_interrupted
from torrentdist_cli.frame.terminal import say

if TYPE_CHECKING:
    from torrentdist.api.async_client import AsyncClient
    from torrentdist.client.masters.master_client import MasterClient
    from torrentdist.model.configuration.config import ClientConfig

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


T = TypeVar("T")
Show = TypeVar("Show")


@contextlib.asynccontextmanager
async def masters(config: ClientConfig, *, dry_run: bool = False) -> AsyncIterator[MasterClient]:
    from torrentdist.client.masters.master_client import MasterClient

    async with MasterClient(config, on_wait=lambda why: say(why, label="waiting", color="yellow")) as client:
        client.dry_run = dry_run
        yield client
        if dry_run:
            say_dry_run()
        if client.stale is not None:
            say(client.stale.sentence(), label="warning:", color="yellow")


def say_dry_run() -> None:
    say("nothing was changed", label="dry run:", color="yellow")


def ask_masters(session: Session, work: Callable[[MasterClient], Awaitable[T]]) -> T:
    """Runs `work` with a client of the masters. Raises Interrupted if a signal ended it."""

    async def with_client() -> T:
        async with masters(session.config().client, dry_run=session.dry_run) as client:
            return await work(client)

    return run(with_client())


def cluster_of(session: Session) -> AsyncClient:
    """Returns the Python API for this command's cluster."""
    from torrentdist.api.async_client import AsyncClient

    return AsyncClient.of(session.config(), functools.partial(masters, dry_run=session.dry_run))


def run_with_progress(
    display: AbstractContextManager[Show], begin: Callable[[Show], Coroutine[Any, Any, T]], show: Callable[[T], None]
) -> None:
    """Runs what `begin` starts, under a display of its progress, and then shows its result. If only
    a part was done, it shows that, and raises the error `partly`."""
    try:
        with display as progress:
            view = run(begin(progress))
    except TorrentdistError as error:
        from torrentdist.api.shortfalls import result_in

        if (part := result_in(error)) is not None:
            show(part)
        raise
    show(view)
