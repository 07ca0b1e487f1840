"""The internals of uvicorn that our adapter uses are still where it expects them."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.process.listening_sockets import bind_socket

pytestmark = pytest.mark.anyio
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
