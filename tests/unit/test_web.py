"""How the HTTP server behaves when clients go away, and when it stops."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.http.web import StreamedAnswer, compact_response, flag_parameter, read_body
from torrentdist.host.process.listening_sockets import bind_socket
from torrentdist.model.errors import TorrentdistError

pytestmark = pytest.mark.anyio


async def test_a_client_that_goes_away_is_no_failure_of_ours() -> None:
    """Without this, every killed client would leave a traceback in the daemons' logs, and real ones
    would drown in them.
    """
    messages: list[Message] = [
        {"type": "http.request", "body": b"half", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return messages.pop(0)

    async def grow(_: int) -> None: ...

    request = Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)
    with pytest.raises(TorrentdistError) as caught:
        await read_body(request, 100, grow)

    assert caught.value.code == "interrupted"


async def test_an_answer_that_is_cut_by_a_clean_stop_is_no_failure_of_ours(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without this, a daemon that is stopped during a download would print a traceback."""

    async def endless(_: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9000")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await asyncio.Event().wait()

    web = WebServer(endless, bind_socket("127.0.0.1", 0, what="the test"), grace_secs=0.0)
    await web.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"half")
    await web.stop()
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()

    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    assert "Traceback" not in capsys.readouterr().err


async def test_a_stream_ends_when_its_client_is_gone() -> None:
    """What it waits for, and its sender's place among the streams, would be held until it has the
    next thing to send.
    """
    ended = asyncio.Event()

    async def news() -> AsyncIterator[bytes]:
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            ended.set()

    web = WebServer(StreamedAnswer(news()), bind_socket("127.0.0.1", 0, what="the test"))
    await web.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"first")
    writer.close()
    async with asyncio.timeout(10):
        await ended.wait()
    await web.stop()


@pytest.mark.parametrize(("accepts", "count", "packed"), [("gzip", 500, True), ("", 500, False), ("gzip", 5, False)])
def test_a_long_answer_is_compressed_for_those_who_read_that(accepts: str, count: int, packed: bool) -> None:
    """A command that watches a distribution would take a twentieth of a slow link from it."""
    request = Request({"type": "http", "headers": [(b"accept-encoding", accepts.encode())]})
    answer = compact_response(request, ["host"] * count)
    body = bytes(answer.body)

    assert packed == (answer.headers.get("content-encoding") == "gzip") == (len(body) < count)
    assert ["host"] * count == json.loads(gzip.decompress(body) if packed else body)


async def test_a_stream_that_fails_is_a_failure() -> None:
    """Its part would pass for the whole."""

    async def broken() -> AsyncIterator[bytes]:
        yield b"first"
        raise TorrentdistError("corrupt", path="a", detail="it has changed")

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    with pytest.raises(TorrentdistError):
        await StreamedAnswer(broken())({"type": "http"}, receive, send)

    assert [b"first"] == [message["body"] for message in sent if "body" in message]


def with_query(query: bytes) -> Request:
    return Request({"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": query})


@pytest.mark.parametrize(
    ("query", "expected"), [(b"dry_run=true", True), (b"dry_run=false", False), (b"", False), (b"other=true", False)]
)
async def test_a_flag_is_true_or_false(query: bytes, expected: bool) -> None:
    """Clients could not ask for a dry run, or would get one that they did not ask for."""
    assert expected is flag_parameter(with_query(query), "dry_run")


@pytest.mark.parametrize("value", [b"1", b"True", b"yes", b"", b"true "])
async def test_a_flag_with_another_word_is_refused(value: bytes) -> None:
    """`dry_run=1` would really delete bundles."""
    with pytest.raises(TorrentdistError) as caught:
        flag_parameter(with_query(b"dry_run=" + value), "dry_run")

    assert "invalid_request" == caught.value.code
