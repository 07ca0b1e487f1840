"""HTTP/1.1 on asyncio's own streams: what httpx needs of a transport for masters and supervisors, and nothing more.

Always holds: a connection is used again only when its last answer was read to the end; whoever gives up a request, or
its answer, ends the connection. Must not do: send a request twice, since the first may have been carried out; import
what a command that starts has to wait for (httpx's own is a tenth of that).
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import h11
import httpx

IDLE_SECS: Final = 60.0
"""Less than our servers keep an idle connection."""
MOST_IDLE: Final = 50
SECOND_ADDRESS_SECS: Final = 0.1
"""Of a name with several addresses the next one is tried after so long too."""
READ_BYTES: Final = 256 * 1024
WRITE_BYTES: Final = 64 * 1024
_PORTS: Final = {"http": 80, "https": 443}


class Origin(NamedTuple):
    scheme: str
    host: str
    port: int


class Connections(httpx.AsyncBaseTransport):
    """Pass it to httpx.AsyncClient. `secure`: for https, whom to trust; by default as httpx does."""

    def __init__(self, secure: ssl.SSLContext | None = None) -> None:
        self._secure = secure
        self._idle: dict[Origin, list[_Connection]] = {}
        self._open: set[_Connection] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        timeouts = request.extensions.get("timeout", {})
        origin = _origin(request.url)
        connection = self._reuse(origin) or await self._connect(origin, timeouts.get("connect"))
        try:
            await connection.send(request, timeouts.get("write"))
            answer = await connection.begin(timeouts.get("read"))
        except BaseException:
            self._end(connection)
            raise
        return httpx.Response(
            status_code=answer.status_code,
            headers=answer.headers.raw_items(),
            stream=_Body(self, connection, timeouts.get("read")),
            extensions={"http_version": b"HTTP/" + answer.http_version, "network_stream": connection.writer},
        )

    async def aclose(self) -> None:
        self._idle.clear()
        for connection in list(self._open):
            self._end(connection)
        await asyncio.sleep(0)  # the loop may be closed after this, and would leave them open

    def release(self, connection: _Connection) -> None:
        """Its answer is of no more interest."""
        idle = self._idle.setdefault(connection.origin, [])
        if connection in self._open and len(idle) < MOST_IDLE and connection.is_over():
            idle.append(connection)
        else:
            self._end(connection)

    def _reuse(self, origin: Origin) -> _Connection | None:
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.is_usable():
                return connection
            self._end(connection)
        return None

    async def _connect(self, origin: Origin, secs: float | None) -> _Connection:
        secure = None
        if origin.scheme == "https":
            self._secure = secure = self._secure or httpx.create_ssl_context(trust_env=False)
        try:
            async with asyncio.timeout(secs):
                reader, writer = await asyncio.open_connection(
                    origin.host,
                    origin.port,
                    limit=READ_BYTES,
                    ssl=secure,
                    server_hostname=origin.host if secure else None,
                    happy_eyeballs_delay=SECOND_ADDRESS_SECS,
                )
        except TimeoutError as exc:
            raise httpx.ConnectTimeout(f"no connection to {origin.host}:{origin.port} in time") from exc
        except (OSError, UnicodeError) as exc:
            raise httpx.ConnectError(_why(exc)) from exc
        connection = _Connection(origin, reader, writer)
        self._open.add(connection)
        return connection

    def _end(self, connection: _Connection) -> None:
        self._open.discard(connection)
        connection.end()


class _Connection:
    def __init__(self, origin: Origin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.origin = origin
        self.writer = writer
        self._reader = reader
        self._talk = h11.Connection(h11.CLIENT)
        self._used_at = 0.0

    async def send(self, request: httpx.Request, secs: float | None) -> None:
        """A server that wants no more of it may have said why: then that is what counts."""
        talk = self._talk
        assert isinstance(request.stream, httpx.AsyncByteStream)
        try:
            ahead = talk.send(
                h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
            )
            async for part in request.stream:
                ahead = (ahead or b"") + (talk.send(h11.Data(data=part)) or b"")
                if len(ahead) >= WRITE_BYTES:
                    await self._write(ahead, secs)
                    ahead = b""
            await self._write((ahead or b"") + (talk.send(h11.EndOfMessage()) or b""), secs)
        except httpx.WriteError:
            pass
        except h11.LocalProtocolError as exc:
            raise httpx.LocalProtocolError(str(exc)) from exc

    async def begin(self, secs: float | None) -> h11.Response:
        while True:
            event = await self._next(secs)
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise httpx.RemoteProtocolError(f"{event!r} instead of an answer")

    async def body(self, secs: float | None) -> AsyncIterator[bytes]:
        while isinstance(event := await self._next(secs), h11.Data):
            yield bytes(event.data)

    def is_over(self) -> bool:
        """Whether request and answer are complete; if so, the next ones may come."""
        if self._talk.our_state is not h11.DONE or self._talk.their_state is not h11.DONE:
            return False
        self._talk.start_next_cycle()
        self._used_at = time.monotonic()
        return True

    def is_usable(self) -> bool:
        fresh = time.monotonic() - self._used_at < IDLE_SECS
        return fresh and not self._reader.at_eof() and not self.writer.is_closing()

    def end(self) -> None:
        self.writer.transport.abort()

    async def _next(self, secs: float | None) -> object:
        """Of h11's events."""
        try:
            while (event := self._talk.next_event()) is h11.NEED_DATA:
                data = await self._read(secs)
                if not data and self._talk.their_state is h11.SEND_RESPONSE:
                    raise httpx.RemoteProtocolError("the connection ended without an answer")
                self._talk.receive_data(data)
        except h11.RemoteProtocolError as exc:
            raise httpx.RemoteProtocolError(str(exc)) from exc
        return event

    async def _read(self, secs: float | None) -> bytes:
        try:
            async with asyncio.timeout(secs):
                return await self._reader.read(READ_BYTES)
        except TimeoutError as exc:
            raise httpx.ReadTimeout("nothing came in time") from exc
        except OSError as exc:
            raise httpx.ReadError(str(exc)) from exc

    async def _write(self, data: bytes, secs: float | None) -> None:
        try:
            self.writer.write(data)
            async with asyncio.timeout(secs):
                await self.writer.drain()
        except TimeoutError as exc:
            raise httpx.WriteTimeout("nothing was taken in time") from exc
        except OSError as exc:
            raise httpx.WriteError(str(exc)) from exc


class _Body(httpx.AsyncByteStream):
    def __init__(self, connections: Connections, connection: _Connection, secs: float | None) -> None:
        self._connections = connections
        self._connection = connection
        self._secs = secs
        self._released = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._connection.body(self._secs):
                yield part
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        if not self._released:
            self._released = True
            self._connections.release(self._connection)


def _why(exc: OSError | UnicodeError) -> str:
    """asyncio says "Connect call failed", and whom it called, where others say why."""
    if isinstance(exc, ConnectionError) and exc.errno:
        return os.strerror(exc.errno)
    return str(exc)


def _origin(url: httpx.URL) -> Origin:
    if url.scheme not in _PORTS:
        raise httpx.UnsupportedProtocol(f"{url.scheme or 'no'} protocol")
    return Origin(url.scheme, url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme])
