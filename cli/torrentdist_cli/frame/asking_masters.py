"""Runs a command's work with a client of the masters, for reads and changes. It says on stderr when
it waits, and when an answer may be out of date.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.configuration.config import ClientConfig
from torrentdist_cli.frame.interruption import run
from torrentdist_cli.frame.invocation import Session
from torrentdist_cli.frame.terminal import say

T = TypeVar("T")


@contextlib.asynccontextmanager
async def masters(config: ClientConfig) -> AsyncIterator[MasterClient]:
    async with MasterClient(config, on_wait=lambda why: say(why, label="waiting", color="yellow")) as client:
        yield client
        if client.stale is not None:
            say(client.stale.sentence(), label="warning:", color="yellow")


def ask_masters(session: Session, work: Callable[[MasterClient], Awaitable[T]]) -> T:
    """Runs `work` with a client of the masters. Raises Interrupted if a signal ended it."""

    async def with_client() -> T:
        async with masters(session.config().client) as client:
            return await work(client)

    return run(with_client())
