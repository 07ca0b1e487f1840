"""The HTTP shell of both daemons: sockets, the server in our own event loop, JSON, errors.

Always holds: every failure leaves as an error of the table, with its status. Must not do: listen anywhere but on
loopback without a token.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec
import structlog
import uvicorn
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torrentdist.model.errors import TorrentdistError

log = structlog.get_logger(__name__)

V = TypeVar("V")
PRINCIPAL: Final = "torrentdist.principal"
"""The key of a request's sender in its scope. authentication.py sets it."""


class AnyPath(PathConvertor):
    """Starlette's own `path` stops at a line break, which is a character like others in a file's name."""

    regex = r"[\s\S]*"


register_url_convertor("any_path", AnyPath())
_JSON = msgspec.json.Encoder()


def json_response(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_JSON.encode(value), status_code=status, media_type="application/json", headers=headers)


async def on_torrentdist_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, TorrentdistError)
    return json_response(exc.to_wire(), status=exc.http_status)


async def on_unexpected_error(request: Request, exc: Exception) -> Response:
    log.error("request failed", path=request.url.path, sender=str(request.scope.get(PRINCIPAL)), exc_info=exc)
    error = TorrentdistError("internal", detail=f"{type(exc).__name__} in {request.url.path}")
    return json_response(error.to_wire(), status=error.http_status)


async def on_http_error(request: Request, exc: Exception) -> Response:
    status = getattr(exc, "status_code", 500)
    if status == 404:
        error = TorrentdistError("not_found", what=request.url.path)
        return json_response(error.to_wire(), status=status)
    allow = {"allow": ", ".join(sorted(_methods(request)))} if status == 405 else {}
    if allow and request.method == "OPTIONS":
        return Response(status_code=204, headers=allow)
    error = TorrentdistError("invalid_request", detail=f"{request.method} {request.url.path}: {exc}")
    return json_response(error.to_wire(), status=status, headers=allow)


def _methods(request: Request) -> set[str]:
    """All that this path knows: each of several routes may know some."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return {"OPTIONS"}.union(*(getattr(route, "methods", None) or () for route in routes))


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body, or `too_large` as soon as it is known to pass the limit."""
    declared = request.headers.get("content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise TorrentdistError("too_large", what="the request, in bytes,", size=int(declared), limit=limit)
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise TorrentdistError("too_large", what="the request, in bytes,", size=size, limit=limit)
            parts.append(part)
    except ClientDisconnect:  # nobody reads the answer, but it is no failure of ours
        raise TorrentdistError("interrupted") from None
    return b"".join(parts)


def decode_body(body: bytes, kind: type[V]) -> V:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as exc:
        raise TorrentdistError("invalid_request", detail=str(exc)) from exc


def number_parameter(request: Request, name: str, default: float, *, low: float, high: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise TorrentdistError("invalid_request", detail=f"{name}={text!r} is not a number from {low:g} to {high:g}")
    return value


class CutShort:
    """An answer that fails after it has begun is cut off, so that nobody takes what there is for all of it."""

    def __init__(self, app: ASGIApp, cut: Callable[[tuple[str, int]], None]) -> None:
        self._app = app
        self._cut = cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        unfinished = False

        async def watched(message: Message) -> None:
            nonlocal unfinished
            unfinished = message["type"] == "http.response.start" or bool(message.get("more_body"))
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as exc:
            if not unfinished:
                raise
            log.warning("an answer was cut off", path=scope["path"], reason=str(exc.__cause__ or exc))
            self._cut(tuple(scope["client"]))
            await asyncio.sleep(0)  # the server hears of it before we return


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bind_socket(host: str, port: int, *, what: str) -> socket.socket:
    """A listening socket, or `port_in_use` before anything else of the daemon has started."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only then; without it every answer waits 40 ms for an ACK.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(1024)
        sock.setblocking(False)
    except OSError as exc:
        sock.close()
        raise TorrentdistError("port_in_use", what=what, address=f"{host}:{port}", detail=exc.strerror) from exc
    return sock


class _Embedded(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._exit = asyncio.Event()

    def exit(self) -> None:
        self.should_exit = True
        self._exit.set()

    async def main_loop(self) -> None:
        """uvicorn's own wakes ten times a second, to see whether it shall end."""
        await self.on_tick(0)
        await self._exit.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the daemon handles its signals itself


class WebServer:
    """uvicorn on a socket that is already bound, in the event loop that is already running."""

    def __init__(self, app: ASGIApp, sock: socket.socket, *, grace_secs: float = 2.0) -> None:
        """`grace_secs`: how long answers may take that are under way when it is stopped; then they are cut off."""
        self._sock = sock
        self._grace_secs = grace_secs
        config = uvicorn.Config(
            self._until_stopped(app),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            date_header=False,
            backlog=1024,
            timeout_keep_alive=75,  # longer than any announce period: the agents' connections stay warm
        )
        self._server = _Embedded(config)
        self._task: asyncio.Task[None] | None = None

    def _until_stopped(self, app: ASGIApp) -> ASGIApp:
        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await app(scope, receive, send)
            except asyncio.CancelledError:
                if not self._server.should_exit:
                    raise
                log.info("an answer was cut off by the end of this daemon", path=scope["path"])
                self.cut(tuple(scope["client"]))
                await asyncio.sleep(0)  # the server hears of it before we return

        return answer

    @property
    def port(self) -> int:
        return int(self._sock.getsockname()[1])

    def cut(self, client: tuple[str, int]) -> None:
        """Reset a client's connection: many take a plain end for the end of the answer, whatever length it promised."""
        for connection in list(self._server.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None and tuple(getattr(connection, "client", None) or ()) == client:
                sock = transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                transport.abort()

    async def start(self) -> None:
        self._task = asyncio.create_task(self._server.serve(sockets=[self._sock]), name="http")
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise TorrentdistError("internal", detail="the HTTP server ended while starting")
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        if self._task is not None:
            self._server.exit()
            ended, _ = await asyncio.wait({self._task}, timeout=self._grace_secs)
            if not ended:  # uvicorn would do the same, and call it an error
                for answer in list(self._server.server_state.tasks):
                    answer.cancel()
                self._server.force_exit = True
            await self._task
        self._sock.close()
