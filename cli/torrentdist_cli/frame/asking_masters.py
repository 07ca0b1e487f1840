"""Runs a command's work with a client of the masters, for reads and changes. It says on stderr when
it waits, and when an answer may be out of date.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from torrentdist.model.errors import TorrentdistError
from torrentdist_cli.frame.interruption import run
from torrentdist_cli.frame.invocation import Session
from torrentdist_cli.frame.terminal import say

if TYPE_CHECKING:
    from torrentdist.api.async_client import AsyncClient
    from torrentdist.client.masters.master_client import MasterClient
    from torrentdist.model.configuration.config import ClientConfig

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
