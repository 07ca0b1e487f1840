"""How the HTTP server behaves when clients go away, and when it stops."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from torrentdist.host.http import web
from torrentdist.host.http.body_room import SMALL_BYTES
from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.operation import Operation, api_app
from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.http.web import (
    PRINCIPAL,
    StreamedAnswer,
    announced_size,
    compact_response,
    flag_parameter,
    number_parameter,
    poll_secs,
    read_body,
)
from torrentdist.host.process.listening_sockets import bind_socket
from torrentdist.log import show_lines
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import AccessAudited
from torrentdist.security.authorization import LOCAL, Role

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

    server = WebServer(endless, bind_socket("127.0.0.1", 0, what="the test"), grace_secs=0.0)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"half")
    await server.stop()
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

    server = WebServer(StreamedAnswer(news()), bind_socket("127.0.0.1", 0, what="the test"))
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"first")
    writer.close()
    async with asyncio.timeout(10):
        await ended.wait()
    await server.stop()


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


@pytest.mark.parametrize(
    ("query", "expected"),
    [(b"", 7.0), (b"n=1", 1.0), (b"n=9.5", 9.5), (b"n=0.9", None), (b"n=9.6", None), (b"n=x", None), (b"n=nan", None)],
)
async def test_a_number_has_bounds(query: bytes, expected: float | None) -> None:
    """A request for a list of a billion, or a wait of a year, would hold up a daemon."""
    if expected is None:
        with pytest.raises(TorrentdistError, match="from 1 to") as caught:
            number_parameter(with_query(query), "n", 7.0, low=1, high=9.5)
        assert "invalid_request" == caught.value.code
    else:
        assert expected == number_parameter(with_query(query), "n", 7.0, low=1, high=9.5)


async def test_a_long_poll_is_answered_before_it_looks_like_silence() -> None:
    """A client would take a waiting master for a frozen one, or an older client be refused."""
    assert [0.0, 1.5, 2.0, 2.0] == [poll_secs(with_query(q), "w") for q in (b"", b"w=1.5", b"w=2", b"w=30")]
    with pytest.raises(TorrentdistError):
        poll_secs(with_query(b"w=31"), "w")


def with_body(*parts: bytes, announced: str = "", pause: float = 0.0) -> Request:
    """Returns a request whose body comes in these parts, with a pause before each."""
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    waiting.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Message:
        await asyncio.sleep(pause)
        return waiting.pop(0)

    headers = [(b"content-length", announced.encode())] if announced else []
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)


async def test_a_body_takes_room_as_it_comes_and_no_more_than_it_may() -> None:
    """A request without an end would take a daemon's memory."""
    grown: list[int] = []

    async def grow(size: int) -> None:
        grown.append(size)

    assert b"abcdef" == await read_body(with_body(b"abc", b"def"), 6, grow)
    assert [3, 6] == grown[:2]
    for request in (with_body(b"abc", b"defg"), with_body(announced="7")):
        with pytest.raises(TorrentdistError) as caught:
            await read_body(request, 6, grow)
        assert ("too_large", 413) == (caught.value.code, caught.value.http_status)
    assert max(grown) == 6, "what is refused takes no room"


@pytest.mark.parametrize(("size", "is_refused"), [(SMALL_BYTES + 1, True), (SMALL_BYTES, False)])
async def test_only_a_large_body_must_not_be_slow(monkeypatch: pytest.MonkeyPatch, size: int, is_refused: bool) -> None:
    """One slow sender would hold the room that all others wait for."""
    monkeypatch.setattr(web, "SLOW_SECS", 0.0)
    monkeypatch.setattr(web, "LEAST_RATE", 1 << 40)
    request = with_body(b"x" * size, announced=str(size), pause=0.02)
    if is_refused:
        with pytest.raises(TorrentdistError, match="comes slower than"):
            await read_body(request, 2 * size, _no_room)
    else:
        assert size == len(await read_body(request, size, _no_room))


async def _no_room(_: int) -> None: ...


@pytest.mark.parametrize(("text", "size"), [("12", 12), ("", 0), ("-1", 0), ("1e3", 0), ("٣", 0)])
async def test_an_announced_size_is_a_number_of_digits(text: str, size: int) -> None:
    """A strange header would be an error of ours."""
    headers = [(b"content-length", text.encode("utf-8"))] if text else []

    assert size == announced_size(Request({"type": "http", "headers": headers}))


class SomeRoutes(DeclaredRoutes):
    """Two operations of one path."""

    @operation("GET", "/v1/thing", None, Role.READER)
    async def get(self, request: Request) -> Response:
        """A thing."""
        return Response("thing")

    @operation("GET", "/v1/parts", None, Role.READER)
    async def parts(self, request: Request) -> Response:
        """What fails after it has begun."""

        async def half() -> AsyncIterator[bytes]:
            yield b"half"
            raise TorrentdistError("bundle_not_found", id="b")

        return StreamedAnswer(half())

    @operation("PUT", "/v1/thing", None, Role.READER, max_body=10)
    async def put(self, request: Request) -> Response:
        """What fails."""
        raise ValueError("a bug of ours")


@pytest.mark.parametrize(
    ("method", "path", "status", "error", "allow"),
    [
        ("GET", "/v1/thing", 200, "", ""), ("DELETE", "/v1/thing", 405, "invalid_request", "GET, HEAD, OPTIONS, PUT"),
        ("OPTIONS", "/v1/thing", 204, "", "GET, HEAD, OPTIONS, PUT"), ("GET", "/v1/nothing", 404, "not_found", ""),
        ("OPTIONS", "/v1/nothing", 404, "not_found", ""), ("PUT", "/v1/thing", 500, "internal", ""),
    ],
)  # fmt: skip
async def test_every_failure_is_an_error_of_the_table(
    method: str, path: str, status: int, error: str, allow: str
) -> None:
    """A client could not tell what went wrong, nor which methods there are."""
    app = api_app(SomeRoutes().operations())

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, PRINCIPAL: LOCAL}, receive, send)

    transport = httpx.ASGITransport(app=known, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://m1") as client:
        answer = await client.request(method, path)

    assert (status, allow) == (answer.status_code, answer.headers.get("allow", ""))
    assert not error or error == answer.json()["error"]


async def test_an_answer_that_ends_with_a_known_error_is_no_mistake_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bundle that is removed while somebody reads it would leave a traceback in the log of its
    host."""
    app = api_app(SomeRoutes().operations())
    sent: list[Message] = []
    events: list[str] = []
    monkeypatch.setattr("torrentdist.log._shown", None)
    show_lines(lambda level, event, fields: events.append(event), logging.INFO)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/v1/parts", "headers": [], "query_string": b"", PRINCIPAL: LOCAL}
    with pytest.raises(RuntimeError, match="already started"):
        await app(scope, asyncio.Event().wait, send)  # type: ignore[arg-type]

    assert b"half" == sent[1]["body"]
    assert [] == events


async def test_a_change_that_the_end_of_its_daemon_cuts_off_is_not_told_as_made() -> None:
    """The audit would say that a change was made, of which nobody knows whether it was."""
    told: list[str] = []
    begun = asyncio.Event()

    class Heard:
        def changed(self, fact: AccessAudited) -> None:
            told.append(fact.result)

        refused = changed

    async def change(_: Request) -> Response:
        begun.set()
        await asyncio.sleep(60.0)
        return Response()

    made = Operation("POST", "/v1/thing", change, None, "a change", Role.OPERATOR, changes=True)
    app = api_app([made], audit=Heard())
    scope = {
        "type": "http", "method": "POST", "path": "/v1/thing", "headers": [], "query_string": b"", PRINCIPAL: LOCAL
    }  # fmt: skip

    async def unheard(_: Message | None = None) -> Message:
        return {"type": "http.request"}

    answering = asyncio.create_task(app(scope, unheard, unheard))  # type: ignore[arg-type]
    await begun.wait()
    answering.cancel()
    await asyncio.wait({answering})

    assert ["interrupted"] == told
