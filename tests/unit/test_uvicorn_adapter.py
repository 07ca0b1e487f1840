"""The internals of uvicorn that our adapter uses are still where it expects them."""

from __future__ import annotations

import asyncio
import inspect
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.process.listening_sockets import bind_socket

pytestmark = pytest.mark.anyio
DATA_SEGS_IN = 152
"""Where the kernel's tcp_info has the number of packets with data that came."""
FORWARDED = b"X-Forwarded-For: 10.6.6.6\r\nX-Forwarded-Proto: https\r\nForwarded: for=10.6.6.6\r\n"


async def test_a_server_of_uvicorn_has_what_the_adapter_replaces() -> None:
    """If this fails, a new uvicorn runs its own loop and takes the daemon's signals."""
    server = uvicorn.Server(uvicorn.Config("app:none"))

    replaced = [server.main_loop, server.on_tick, server.serve]

    assert all(map(inspect.iscoroutinefunction, replaced))
    assert {"counter"} == set(inspect.signature(server.on_tick).parameters)
    assert {"sockets"} == set(inspect.signature(server.serve).parameters)
    assert callable(server.capture_signals)
    assert (False, False, False) == (server.started, server.should_exit, server.force_exit)
    assert (set(), set()) == (server.server_state.connections, server.server_state.tasks)


async def test_a_running_server_shows_its_connections_and_answers() -> None:
    """If this fails, an interrupted answer ends like a complete one, and a stop waits for a client
    for ever."""
    begun = asyncio.Event()

    async def endless(_: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await asyncio.Event().wait()

    web = WebServer(endless, bind_socket("127.0.0.1", 0, what="the test"), grace_secs=0.0)
    await web.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await begun.wait()
    state = web._server.server_state
    (found,) = state.connections
    connection: Any = found
    seen = tuple(connection.client or ()), connection.transport.get_extra_info("socket") is not None, len(state.tasks)
    web.cut(writer.get_extra_info("sockname"))
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    await web.stop()

    assert (writer.get_extra_info("sockname"), True, 1) == seen


async def test_a_small_answer_is_one_packet_and_no_head_waits_for_a_late_body() -> None:
    """Hundreds of hosts that announce over a slow link would take a tenth of it for headers, or a
    client would take a slow answer for none."""
    body = asyncio.Event()

    async def late() -> AsyncIterator[bytes]:
        await body.wait()
        yield b"late"

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answer = StreamingResponse(late()) if scope["path"] == "/late" else Response(b"small", headers={"x": "y"})
        await answer(scope, receive, send)

    web = WebServer(app, bind_socket("127.0.0.1", 0, what="the test"), grace_secs=0.0)
    await web.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"\r\n\r\nsmall")
    known = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    packets = int.from_bytes(known[DATA_SEGS_IN : DATA_SEGS_IN + 4], sys.byteorder)
    writer.write(b"GET /late HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(5):
        await reader.readuntil(b"\r\n\r\n")
        body.set()
        await reader.readuntil(b"late")
    writer.close()
    await web.stop()

    assert 1 == packets


@pytest.mark.case("F9")
async def test_the_source_of_a_request_is_its_connection_whatever_its_head_says() -> None:
    """If this fails, every program of this machine announces, and is audited, under any address."""
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)
        await Response()(scope, receive, send)

    web = WebServer(app, bind_socket("127.0.0.1", 0, what="the test"), grace_secs=0.0)
    await web.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + FORWARDED + b"\r\n")
    own = writer.get_extra_info("sockname")
    await reader.read()
    writer.close()
    await web.stop()

    assert [(own, "http")] == [(tuple(scope["client"]), scope["scheme"]) for scope in seen]
