"""Every answer is limited: a server cannot take the memory or the time of its caller."""

from __future__ import annotations

import asyncio
import contextlib
import gzip

import pytest
from raw_http_server import heads, served

from torrentdist.http.http_values import AnswerTooLarge, HttpError

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3E9\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1001,
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + bytes(1001),
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s"
        % (len(packed := gzip.compress(bytes(1001))), packed),
    ],
    ids=["length", "chunk", "chunks", "until the end", "unpacked"],
)
async def test_an_answer_that_is_too_large_is_refused_before_it_is_read(answer: bytes) -> None:
    """If this fails, one server can use up its caller's memory; with a compressed answer, a few
    bytes suffice."""

    async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for _ in heads(reader):
            writer.write(answer)

    async with served(floods) as (server, client):
        with pytest.raises(AnswerTooLarge):
            await client.request("GET", server.url, most_bytes=1000)


async def test_an_answer_as_large_as_allowed_is_read() -> None:
    """If this fails, the largest metafile that may be uploaded cannot be downloaded."""
    packed = gzip.compress(bytes(1000))

    async def packs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for _ in heads(reader):
            head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
            writer.write(head + packed)

    async with served(packs) as (server, client):
        assert bytes(1000) == (await client.request("GET", server.url, most_bytes=1000)).content


@pytest.mark.parametrize("endless", [b"HTTP/1.1 103 Early Hints\r\n\r\n", b"x: y\r\n"])
async def test_an_answer_whose_head_never_ends_is_given_up(endless: bytes) -> None:
    """If this fails, a server that sends an endless head keeps its caller for ever."""

    async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if endless.startswith(b"x"):
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(endless)
                await writer.drain()
                await asyncio.sleep(0)

    async with served(drips) as (server, client):
        with pytest.raises(HttpError, match="without an end"):
            await client.get(server.url)
