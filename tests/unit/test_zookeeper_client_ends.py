"""A ZooKeeper client whose thread cannot go on, with a server that only hangs up."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from zookeeper_fixtures import eventually

from torrentdist.cluster.session import zookeeper_session
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError

pytestmark = pytest.mark.anyio

NO_DESCRIPTOR = OSError(errno.EMFILE, "Too many open files")


def failing(work: Callable[..., Any], *failures: Exception | None) -> Callable[..., Any]:
    """Returns `work`, whose first calls fail so. None: that one does not."""
    left = iter(failures)

    def attempt(*args: Any, **kwargs: Any) -> Any:
        failure = next(left, None)
        if failure is not None:
            raise failure
        return work(*args, **kwargs)

    return attempt


@asynccontextmanager
async def hanging_up() -> AsyncIterator[tuple[str, list[None]]]:
    """Yields the address of a server that closes each connection, and a list with an entry for
    each."""
    heard: list[None] = []

    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(None)
        writer.transport.abort()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        yield f"localhost:{server.sockets[0].getsockname()[1]}", heard


@asynccontextmanager
async def connecting(address: str) -> AsyncIterator[None]:
    """Runs the body while a client tries to connect."""
    zk = ZooKeeper(ZooKeeperConfig(servers=[address], chroot="/cluster", session_timeout_secs=2.0))
    with contextlib.suppress(TorrentdistError):
        await zk.start(0.0)
    try:
        yield
    finally:
        await zk.close()


async def test_a_client_that_cannot_resolve_names_for_a_moment_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this failed, a daemon that starts while its host has no free descriptor would never reach
    ZooKeeper."""
    async with hanging_up() as (address, heard):
        monkeypatch.setattr(socket, "getaddrinfo", failing(socket.getaddrinfo, NO_DESCRIPTOR, NO_DESCRIPTOR))
        async with connecting(address):
            await eventually(lambda: heard)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("pairs", [[], [None, NO_DESCRIPTOR, NO_DESCRIPTOR]], ids=["at once", "after two attempts"])
async def test_a_client_that_ended_unconnected_is_replaced(
    pairs: list[Exception | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this failed, a daemon would be without ZooKeeper for ever after one unforeseen error, or
    if the next client could not be started at once."""
    monkeypatch.setattr(zookeeper_session, "_FIRST_REVIVAL_SECS", 0.05)
    async with hanging_up() as (address, heard):
        monkeypatch.setattr(socket, "getaddrinfo", failing(socket.getaddrinfo, ValueError("unforeseen")))
        monkeypatch.setattr(socket, "socketpair", failing(socket.socketpair, *pairs))
        async with connecting(address):
            await eventually(lambda: heard)
