"""A stranger's connection costs a daemon a bounded time and a bounded number of bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http import body_room, uvicorn_adapter
from torrentdist.host.http import web as http_shell
from torrentdist.host.http.authentication import Authentication
from torrentdist.host.http.operation import Operation, api_app, body_of
from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.http.web import json_response
from torrentdist.host.process.listening_sockets import bind_socket
from torrentdist.http.access import with_token
from torrentdist.http.connection_pool import Http
from torrentdist.security.authorization import Role

pytestmark = [pytest.mark.anyio, pytest.mark.case("F11")]

TOKEN = "secret"
LARGE = 61 * 1024 * 1024
SHORT, LONG = 0.3, 30.0
HEAD = b"POST /v1/body HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer secret\r\nX-Request-Id: a\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def measure(request: Request) -> Response:
    return json_response(len(await body_of(request)))


async def hello(_: Request) -> Response:
    return json_response("hello")


OPERATIONS = [
    Operation("POST", "/v1/body", measure, int, "the length of the body", Role.UPLOADER, max_body=2 * LARGE),
    Operation("GET", "/livez", hello, str, "hello", Role.ANYONE),
]


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[WebServer]:
    app = Authentication(api_app(OPERATIONS), TOKEN, ("/livez",))
    web = WebServer(app, bind_socket("127.0.0.1", 0, what="the test"), grace_secs=0.0)
    await web.start()
    try:
        yield web
    finally:
        await web.stop()


async def opened(web: WebServer, sent: bytes) -> Streams:
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    writer.write(sent)
    await writer.drain()
    return reader, writer


async def ends(streams: Streams) -> bool:
    """Whether the server ends the connection without an answer in a reasonable time."""
    reader, writer = streams
    try:
        async with asyncio.timeout(LONG):
            return await reader.read() == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True
    finally:
        writer.close()


@pytest.fixture
def short_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_adapter, "HEAD_SECS", SHORT)


@pytest.fixture
def short_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_adapter, "BODY_SECS", SHORT)


def test_the_limits_are_those_that_the_page_names() -> None:
    """An operator would read other limits than those that apply."""
    assert (10.0, 30.0) == (uvicorn_adapter.HEAD_SECS, uvicorn_adapter.BODY_SECS)
    assert (30.0, 64 * 1024, 5.0) == (http_shell.SLOW_SECS, http_shell.LEAST_RATE, body_room.ROOM_SECS)


async def test_half_open_connections_die(short_head: None) -> None:
    """Three thousand half requests would hold three thousand sockets of a daemon for ever."""
    async with served() as web:
        beginnings = [b"", b"GET", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: a"]
        held = [await opened(web, beginnings[number % 4]) for number in range(200)]

        assert all(await asyncio.gather(*map(ends, held)))


async def test_a_head_that_drips_is_not_awaited(short_head: None) -> None:
    """One byte a second would keep a connection for ever."""
    async with served() as web:
        reader, writer = await opened(web, b"GET / HTTP/1.1\r\nX: ")

        async def drip() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(SHORT / 10)

        dripping = asyncio.create_task(drip())
        ended = await ends((reader, writer))
        dripping.cancel()

        assert ended


async def test_only_half_a_request_is_limited_on_a_kept_connection(short_head: None) -> None:
    """An agent's connection would be lost between two announces, or half a request would live."""
    asked = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with served() as web:
        reader, writer = await opened(web, asked)
        first = await reader.readuntil(b'"hello"')
        await asyncio.sleep(SHORT * 2)
        writer.write(asked)
        second = await reader.readuntil(b'"hello"')
        writer.write(asked[:20])

        assert (first, True) == (second, await ends((reader, writer)))


async def test_a_body_that_stops_coming_ends_its_connection(short_body: None) -> None:
    """Uploads that stop in the middle would fill a daemon with half bodies."""
    async with served() as web:
        assert await ends(await opened(web, HEAD + b"Content-Length: 10\r\n\r\nhalf"))


async def test_a_body_may_take_longer_than_its_pauses(short_body: None) -> None:
    """An upload over a slow link would be cut off."""
    async with served() as web:
        reader, writer = await opened(web, HEAD + b"Content-Length: 30\r\n\r\n")
        for _ in range(30):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(SHORT / 15)

        assert b"200" in await reader.readuntil(b"\r\n")
        writer.close()


async def test_what_is_sent_after_a_refusal_is_not_read() -> None:
    """Strangers without a token could make a daemon read everything that they send."""
    async with served() as web:
        refused = HEAD.replace(b"secret", b"guess") + b"Content-Length: %d\r\n\r\n" % LARGE
        reader, writer = await opened(web, refused)
        writer.transport.set_write_buffer_limits(0)
        sent = 0
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(LONG):  # A client that is never cut off would wait for ever.
                while sent < LARGE:
                    writer.write(bytes(1024 * 1024))
                    await writer.drain()
                    sent += 1024 * 1024
        with contextlib.suppress(ConnectionError):
            assert b"401" in await reader.readuntil(b"\r\n")

        assert sent < LARGE / 4  # as much as the kernels of both sides hold
        writer.close()


async def test_a_connection_ends_whose_client_was_refused_before_it_sent_its_body() -> None:
    """The first bytes of its next request were read as the body, and the rest as a request of its
    own."""
    async with served() as web:
        asks = HEAD.replace(b"secret", b"guess") + b"Content-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        reader, writer = await opened(web, asks)
        answer = await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            writer.write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await writer.drain()
        async with asyncio.timeout(LONG):
            rest = await reader.read()

        assert b"401" in answer.partition(b"\r\n")[0]
        assert b"HTTP/1.1" not in rest
        writer.close()


@pytest.mark.parametrize("size", [10, LARGE])
async def test_a_refused_client_reads_why(size: int) -> None:
    """An upload with a wrong token would say that the connection broke, and be sent again."""
    async with served() as web, Http(access=with_token("guess")) as ours:
        url = f"http://127.0.0.1:{web.port}/v1/body"
        other = await asyncio.to_thread(lambda: httpx.post(url, content=bytes(size), timeout=LONG))
        own = await ours.post(url, content=bytes(size))

        assert [401, 401] == [own.status_code, other.status_code]
        assert b'"unauthorized"' in own.content
        assert own.content == other.content


@pytest.mark.parametrize("size", [0, 10, 64 * 1024 + 1, LARGE])
async def test_a_wanted_body_is_read_whole(size: int) -> None:
    """The bounds would break an upload."""
    async with served() as web, Http(access=with_token(TOKEN)) as client:
        answer = await client.post(f"http://127.0.0.1:{web.port}/v1/body", content=bytes(size))

        assert (200, b"%d" % size) == (answer.status_code, answer.content)


@contextlib.asynccontextmanager
async def dripping(web: WebServer, size: int, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Clients that each announce a large body and send a byte of it now and then."""
    streams = [await opened(web, HEAD + b"Content-Length: %d\r\n\r\n" % size) for _ in range(count)]

    async def drip(writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(SHORT / 10)

    drips = [asyncio.create_task(drip(writer)) for _, writer in streams]
    try:
        yield [reader for reader, _ in streams]
    finally:
        for drops, (_, writer) in zip(drips, streams, strict=True):
            drops.cancel()
            writer.close()


async def test_slow_bodies_do_not_keep_the_room_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four requests of a reader that send a byte now and then would keep everybody from sending a
    metafile or a chunk to this master, for as long as the reader likes."""
    monkeypatch.setattr(http_shell, "SLOW_SECS", SHORT)
    async with served() as web, dripping(web, body_room.ROOM_BYTES // 4, 4) as readers:
        heads = [await asyncio.wait_for(reader.readuntil(b"\r\n"), LONG) for reader in readers]
        async with Http(access=with_token(TOKEN)) as client:
            answer = await client.post(f"http://127.0.0.1:{web.port}/v1/body", content=bytes(LARGE))

    assert (200, b"%d" % LARGE) == (answer.status_code, answer.content)
    assert [True] * 4 == [b"400" in head for head in heads]


async def test_bodies_that_are_only_announced_take_no_room() -> None:
    """A reader could stop all uploads with four requests, at the least rate that is allowed."""
    ours = Http(access=with_token(TOKEN))
    async with served() as web, dripping(web, body_room.ROOM_BYTES // 4, 4), ours as client:
        answer = await client.post(f"http://127.0.0.1:{web.port}/v1/body", content=bytes(LARGE))

    assert (200, b"%d" % LARGE) == (answer.status_code, answer.content)


async def test_a_large_body_without_room_is_sent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload would wait at a master that has no room, while others have."""
    monkeypatch.setattr(body_room, "ROOM_SECS", SHORT)
    monkeypatch.setattr(body_room, "ROOM_BYTES", LARGE)
    ours = Http(access=with_token(TOKEN))
    async with served() as web, ours as client:
        answer = await client.post(f"http://127.0.0.1:{web.port}/v1/body", content=bytes(LARGE))
        small = await client.post(f"http://127.0.0.1:{web.port}/v1/body", content=b"small")

    assert (503, 200) == (answer.status_code, small.status_code)
    assert b'"not_ready"' in answer.content


async def test_a_large_body_may_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload would be refused as slow after a pause that its speed makes good."""
    monkeypatch.setattr(http_shell, "SLOW_SECS", SHORT)
    size = 2 * body_room.SMALL_BYTES
    async with served() as web:
        reader, writer = await opened(web, HEAD + b"Content-Length: %d\r\n\r\n" % size)
        writer.write(bytes(size - 1))
        await writer.drain()
        await asyncio.sleep(SHORT * 3)
        writer.write(b"x")

        assert b"200" in await reader.readuntil(b"\r\n")
        writer.close()


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (b"X: %b\r\nContent-Length: 0\r\n" % (b"x" * 15_000), b"200"),
        (b"X: %b\r\nContent-Length: 0\r\n" % (b"x" * 17_000), b"400"),
        (b"X: 1\r\n" * 3_000 + b"Content-Length: 0\r\n", b"400"),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"400"),
    ],
)
async def test_a_head_that_promises_too_much_is_refused(more: bytes, status: bytes) -> None:
    """A head of 120 kB was taken where it came at once; and a proxy in front could take another
    body than the daemon, and let a request through that hides in it."""
    async with served() as web:
        reader, writer = await opened(web, HEAD + more + b"\r\n0\r\n\r\n")
        async with asyncio.timeout(LONG):
            line = await reader.readline()
        writer.close()

    assert status == line.split()[1]
