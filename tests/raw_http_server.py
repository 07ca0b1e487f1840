"""A server on a loopback port that answers with bytes that a test chooses, and a client of ours
that asks it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from torrentdist.http.access import AccessRule, anonymously
from torrentdist.http.connection_pool import Http

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Records what each connection brought, and decides the answers."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.connections = 0
        self._writers: list[asyncio.StreamWriter] = []
        self.ended = asyncio.Event()
        """Set when a connection has ended."""
        self.url = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._serve(reader, writer)
        writer.close()
        self.ended.set()

    async def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def served(serve: Serve, access: AccessRule = anonymously) -> AsyncIterator[tuple[Server, Http]]:
    server = Server(serve)
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with Http(access=access, connect_secs=10, silence_secs=10) as client:
        try:
            yield server, client
        finally:
            listening.close()
            await server.close()


async def heads(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yields the head of each request; requests have no bodies."""
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            yield await reader.readuntil(b"\r\n\r\n")


async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async for _ in heads(reader):
        writer.write(OK)
