"""Our HTTP client against servers that behave and servers that do not."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import warnings

import pytest
from raw_http_server import OK, answers, heads, served

from torrentdist.http.access import Access, AccessRule, with_token
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import AnswerTimeout, ConnectError, HttpError, InvalidUrl, Patience

pytestmark = pytest.mark.anyio


async def test_one_connection_serves_one_request_after_the_other() -> None:
    """If this failed, every announce would begin with a handshake."""
    async with served(answers) as (server, client):
        texts = [(await client.get(server.url)).content for _ in range(5)]

        assert texts == [b"ok"] * 5
        assert server.connections == 1


async def test_requests_at_the_same_time_have_a_connection_each() -> None:
    """If this failed, an answer could go to another's request."""

    async def echoes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for head in heads(reader):
            await asyncio.sleep(0.05)
            path = head.split()[1]
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path))

    async with served(echoes) as (server, client):
        for _ in range(2):
            found = await asyncio.gather(*(client.get(f"{server.url}/{n}?x=%20") for n in range(20)))
            assert [b"/%d?x=%%20" % n for n in range(20)] == [answer.content for answer in found]

        assert server.connections == 20


@pytest.mark.parametrize("size", [0, 1, 100_000, 20_000_000])
async def test_bodies_arrive_whole_in_both_directions(size: int) -> None:
    """If this failed, a metafile or an uploaded chunk would lack a part."""
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    async def mirrors(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for _ in heads(reader):
            got = await reader.readexactly(size)
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for start in range(0, size, 1_000_000):
                part = got[start : start + 1_000_000]
                writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                await writer.drain()
            writer.write(b"0\r\n\r\n")

    async with served(mirrors) as (server, client):
        for _ in range(2):
            assert (await client.post(server.url, content=body)).content == body

        assert server.connections == 1


async def test_what_is_sent_packed_is_unpacked() -> None:
    """If this failed, a metafile of ten thousand files would need twice its bytes, or look
    damaged."""
    body = b"the same again " * 10_000

    async def packs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for _ in heads(reader):
            packed = gzip.compress(body)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed))
            writer.write(packed)

    async with served(packs) as (server, client):
        for _ in range(2):
            assert (await client.get(server.url)).content == body

        assert server.connections == 1


async def test_an_answer_that_is_cut_off_is_no_answer() -> None:
    """If this failed, half a file would count as the whole."""

    async def cuts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

    async with served(cuts) as (server, client):
        with pytest.raises(HttpError):
            await client.get(server.url)


async def test_a_server_that_ends_without_an_answer_was_asked_once() -> None:
    """If this failed, a request that may have been carried out would be carried out twice."""
    asked = 0

    async def ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1

    async with served(ends) as (server, client):
        with pytest.raises(HttpError, match="without an answer"):
            await client.post(server.url)

        assert asked == 1


async def test_a_connection_that_the_server_has_ended_is_not_used_again() -> None:
    """If this failed, the first request after a master's restart would fail."""

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)

    async with served(once) as (server, client):
        for _ in range(3):
            assert (await client.get(server.url)).content == b"ok"
            await asyncio.sleep(0.05)

        assert server.connections == 3


async def test_what_a_server_says_by_itself_is_no_answer() -> None:
    """If this failed, the next caller would get an answer to a request that was never made."""

    async def nags(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await asyncio.sleep(0.02)
        writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")

    async with served(nags) as (server, client):
        for _ in range(2):
            assert (await client.get(server.url)).status_code == 200
            await asyncio.sleep(0.1)


async def test_connections_that_servers_have_ended_go_also_where_nobody_asks_again() -> None:
    """If this failed, a daemon that contacts many hosts once each would run out of open files after
    months."""

    async def parts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        writer.write_eof()
        await reader.read()  # until the other side has ended it too

    async with served(answers) as (other, client), served(parts) as (server, _):
        await client.get(server.url)
        await asyncio.sleep(0.1)
        await client.get(other.url)
        async with asyncio.timeout(5):
            await server.ended.wait()


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    """If this failed, the answer of a proxy or an older server would be empty, or never end."""

    async def ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + bytes(1_000_000))
        await writer.drain()

    async with served(ends) as (server, client):
        for _ in range(2):
            assert (await client.get(server.url)).content == bytes(1_000_000)

        assert server.connections == 2


async def test_what_comes_before_the_answer_and_what_has_no_body_are_understood() -> None:
    """If this failed, the next answer would be read as the rest of this one."""

    async def says(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for head in heads(reader):
            writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
            if head.startswith(b"HEAD"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n")
            else:
                writer.write(b"HTTP/1.1 204 No Content\r\nX-Said: a\r\nx-said: b\r\n\r\n")

    async with served(says) as (server, client):
        told = [await client.request(method, server.url) for method in ("HEAD", "GET", "HEAD")]

        assert [(answer.status_code, answer.content) for answer in told] == [(200, b""), (204, b""), (200, b"")]
        assert told[1].headers["X-Said"] == "a, b"
        assert server.connections == 1


async def test_a_request_is_what_a_server_expects() -> None:
    """If this failed, a token would be lost, or a name with a special character would become
    another path."""

    async def shows(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for head in heads(reader):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(head), head))

    async with served(shows, with_token("x")) as (server, client):
        asked = client.request(
            "GET", f"{server.url}/a b\u00e4", params={"q": "1 &=/"}, headers={"AUTHORIZATION": "Bearer y"}
        )
        first, *lines = (await asked).content.decode().removesuffix("\r\n\r\n").split("\r\n")

    assert first == "GET /a%20b%C3%A4?q=1%20%26%3D%2F HTTP/1.1"
    assert sorted(lines) == [
        "accept-encoding: gzip",
        "authorization: Bearer y",
        f"host: {server.url.removeprefix('http://')}",
        "user-agent: torrentdist",
        "x-torrentdist: 1",
    ]


async def test_whoever_stops_waiting_ends_the_connection() -> None:
    """If this failed, a late answer would go to the next request."""
    asked = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for head in heads(reader):
            if b"/late" in head:
                asked.set()
                await asyncio.sleep(0.5)
            writer.write(OK)

    async with served(late) as (server, client):
        cancelled = asyncio.create_task(client.get(f"{server.url}/late"))
        await asked.wait()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        with pytest.raises(AnswerTimeout):
            await client.request("GET", f"{server.url}/late", patience=Patience(1.0, 0.1))
        assert (await client.get(server.url)).content == b"ok"

        assert server.connections == 3


async def test_whoever_stops_waiting_for_a_connection_leaves_no_socket() -> None:
    """If this failed, a socket would stay open until Python collects it."""
    async with served(answers) as (server, client):
        gc.collect()
        gc.freeze()  # What other tests have left is not looked through again and again.
        for steps in range(30):
            with warnings.catch_warnings(record=True, category=ResourceWarning) as left:
                warnings.simplefilter("always")
                cancelled = asyncio.create_task(client.get(server.url))
                for _ in range(steps):
                    await asyncio.sleep(0)
                cancelled.cancel()
                await asyncio.wait([cancelled])
                del cancelled
                gc.collect()
            assert not left, steps


async def test_what_may_not_be_sent_is_an_error_of_the_request() -> None:
    """If this failed, a header with a line break would be an internal error with a traceback."""
    async with served(answers) as (server, client):
        for header in ("a\r\nb", "\u20ac"):
            with pytest.raises(HttpError):
                await client.request("GET", server.url, headers={"X-Name": header})
        assert (await client.get(server.url)).content == b"ok"


async def test_a_refusal_that_comes_before_the_body_was_sent_is_read() -> None:
    """If this failed, a client that uploads too much would hear of a broken connection instead of
    the reason."""

    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nwhy")
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                while await reader.read(1_000_000):
                    pass

    async with served(refuses) as (server, client):
        answer = await client.post(server.url, content=bytes(5_000_000))

        assert (answer.status_code, answer.content) == (413, b"why")


@pytest.mark.parametrize(
    "nonsense",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 banana\r\n\r\n",
        b"\0" * 1_000_000,
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhell",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n\r\n"
        + gzip.compress(b"hello" * 9, mtime=0)[:20],
    ],
)
async def test_what_is_no_http_is_an_error_of_the_request(nonsense: bytes) -> None:
    """If this failed, a wrong port in the configuration would be an internal error with a
    traceback."""

    async def talks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(nonsense)

    async with served(talks) as (server, client):
        with pytest.raises(HttpError):
            await client.get(server.url)


async def test_nobody_there_and_nowhere_to_go_are_errors_of_the_request() -> None:
    """If this failed, a master that is down would be an internal error with a traceback."""
    async with served(answers) as (server, client):
        pass
    async with Http(connect_secs=2, silence_secs=2) as client:
        with pytest.raises(ConnectError, match=r"^Connection refused$"):
            await client.get(server.url)
        with pytest.raises(ConnectError):
            await client.get("http://no-such-host.invalid")
        for url in ("ftp://127.0.0.1/", "127.0.0.1:80", "http://", "http://[::1/", "http://a:b/", "http://u:p@a/"):
            with pytest.raises(InvalidUrl):
                await client.get(url)


async def test_the_end_of_the_client_ends_its_connections() -> None:
    """If this failed, a daemon that stops would wait for clients that are gone."""
    async with served(answers) as (server, client):
        await client.get(server.url)
        await client.aclose()
        async with asyncio.timeout(5):
            await server.ended.wait()
        with pytest.raises(ConnectError):
            await client.get(server.url)


async def test_each_server_gets_its_own_credentials() -> None:
    """If this fails, one server learns the token that is meant for another one."""

    async def shows(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for head in heads(reader):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(head), head))

    trusted: list[str] = []
    rule: AccessRule = lambda origin: Access(token="secret") if f":{origin.port}" in trusted[0] else Access()  # noqa: E731
    async with served(shows, rule) as (server, client), served(shows) as (other, _):
        trusted.append(server.url)
        told, untold = [(await client.get(url)).content for url in (server.url, other.url)]

    assert b"authorization: Bearer secret" in told
    assert b"authorization" not in untold
