"""uvicorn inside a daemon: on a socket that is bound already, in the event loop that runs already.

Always: this is the only file that touches uvicorn's internals. tests/unit/test_uvicorn_adapter.py
checks that they are there, and pyproject.toml bounds the version. A connection ends that sends no
whole head or no body in time, and a body that nobody wants is not read.
Never: handle signals, or log requests; the daemon does.
Longer than most files: all that knows uvicorn's internals stands here.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from torrentdist.host.http.file_sending import sending_files
from torrentdist.host.http.secure_port import TwoWayPort, naming_peers
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.live_tls import LiveTls

log = get_logger()

KEEP_ALIVE_SECS = 75
"""Longer than any announce period, so that the agents' connections stay open."""
HANDSHAKE_SECS = 10.0
"""Time for a client to make a secure connection."""

HEAD_BYTES = 16 * 1024
"""Longest head of a request. h11 itself bounds only a head that comes in parts."""
HEAD_SECS = 10.0
"""Time for the whole head of a request, from the first connection or byte on."""
BODY_SECS = 30.0
"""Time without a byte of a body that is under way."""
UNWANTED_BYTES = 64 * 1024
"""A longer body that nobody has read when its answer is complete is left unread."""
MOST_JOINED = 16 * 1024
"""A longer body is not copied to its head."""
HANG_UP_SECS = 1.0
"""Time for the client to read the answer before its connection is cut."""


class BoundedConnection(H11Protocol):
    """A connection whose client may neither be silent in the middle of a request, nor send what
    nobody reads.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limit: asyncio.TimerHandle | None = None
        self._awaits: Any = None
        """The client's state that `_limit` ends: IDLE or SEND_BODY of h11. None: there is none."""
        self._heard_at = 0.0
        self._next_event, self._send_event = self.conn.next_event, self.conn.send
        self.conn.next_event = self._checked_event  # type: ignore[method-assign]
        self.conn.send = self._joined  # type: ignore[method-assign, assignment]
        self._head = b""
        """The head of an answer whose body follows at once."""

    def _checked_event(self) -> Any:
        event = self._next_event()
        if isinstance(event, h11.Request):
            _check_head(event)
        return event

    def _joined(self, event: Any) -> bytes | None:
        """Returns what to send. The head of an answer leaves with the first bytes of its body, or
        one turn of the event loop later, so that a small answer is one packet."""
        made = self._send_event(event)
        if isinstance(event, h11.Response):
            self._head = made or b""
            self.loop.call_soon(self.send_head)
            return b""
        if len(made or b"") > MOST_JOINED:
            self.send_head()
        head, self._head = self._head, b""
        return head + made if head and made else made or head

    def send_head(self) -> None:
        """Sends the head of the answer under way, if that is still to do."""
        head, self._head = self._head, b""
        if head and not self.transport.is_closing():
            self.transport.write(head)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._limit_silence()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        super().data_received(data)
        self._limit_silence()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_limit()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        if self.conn.their_state is h11.SEND_BODY and (self._body_is_long() or self._body_may_stay_away()):
            self._hang_up()
        else:
            super().on_response_complete()
            self._limit_silence()

    def _limit_silence(self) -> None:
        """Starts, keeps or stops the time limit, depending on what the client has to send next."""
        begun = self.timeout_keep_alive_task is None  # else it may be silent until that task ends it
        state = self.conn.their_state
        awaits = state if state is h11.SEND_BODY or (state is h11.IDLE and begun) else None
        if awaits is self._awaits or self.transport.is_closing():
            return
        self._stop_limit()
        self._awaits, self._heard_at = awaits, self.loop.time()
        if awaits is not None:
            secs = BODY_SECS if awaits is h11.SEND_BODY else HEAD_SECS
            self._limit = self.loop.call_later(secs, self._end_silent)

    def _stop_limit(self) -> None:
        self._awaits = None
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _end_silent(self) -> None:
        left = BODY_SECS if self.flow.read_paused else self._heard_at + BODY_SECS - self.loop.time()
        if self._awaits is h11.SEND_BODY and left > 0:
            self._limit = self.loop.call_later(left, self._end_silent)
        else:
            self.transport.abort()

    def _body_is_long(self) -> bool:
        declared = dict(self.headers).get(b"content-length", b"")
        return not declared.isdigit() or int(declared) > UNWANTED_BYTES

    def _body_may_stay_away(self) -> bool:
        """Whether the client asked before it sent its body. Once it is refused, it may begin the
        next request instead, and nobody can tell the two apart."""
        return dict(self.headers).get(b"expect", b"").lower() == b"100-continue"

    def _hang_up(self) -> None:
        """Ends the answer for the client, and reads no more. The client gets time to read it."""
        self._stop_limit()
        self.server_state.total_requests += 1
        self.flow.pause_reading()
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
        self._limit = self.loop.call_later(HANG_UP_SECS, self.transport.abort)


def _check_head(head: h11.Request) -> None:
    """Raises the error that makes uvicorn refuse the request and end its connection."""
    size = len(head.target) + sum(len(name) + len(value) + len(b": \r\n") for name, value in head.headers)
    if size > HEAD_BYTES:
        raise h11.RemoteProtocolError("the head is too long")
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in head.headers}:
        raise h11.RemoteProtocolError("the body has two lengths")  # a proxy may choose the other one


class _Embedded(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, *, plain_too: bool) -> None:
        super().__init__(config)
        self._exit = asyncio.Event()
        self._plain_too = plain_too

    def exit(self) -> None:
        self.should_exit = True
        self._exit.set()

    async def main_loop(self) -> None:
        """Waits for the end. uvicorn's own loop wakes ten times a second to see whether it has
        come."""
        await self.on_tick(0)
        await self._exit.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to listen. uvicorn's own start gives a client 60 s to prove itself."""
        loop, config = asyncio.get_running_loop(), self.config
        protocol, state = config.http_protocol_class, self.server_state
        connect = lambda: protocol(config=config, server_state=state, app_state={})  # type: ignore[call-arg]  # noqa: E731
        if self._plain_too and config.ssl is not None:
            ports = [TwoWayPort(sock, connect, config.ssl, HANDSHAKE_SECS) for sock in sockets or ()]
            self.servers = cast(list[asyncio.Server], ports)
            self.started = True
            return
        self.servers = [
            await loop.create_server(
                connect,
                sock=sock,
                ssl=config.ssl,
                ssl_handshake_timeout=None if config.ssl is None else HANDSHAKE_SECS,
                backlog=config.backlog,
            )
            for sock in sockets or ()
        ]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the daemon handles its signals itself


class WebServer:
    """uvicorn on a socket that is already bound, in the event loop that is already running."""

    def __init__(
        self,
        app: ASGIApp,
        sock: socket.socket,
        *,
        tls: LiveTls | None = None,
        plain_too: bool = False,
        grace_secs: float = 2.0,
    ) -> None:
        """`tls`: serve HTTPS, and with `plain_too` HTTP on the same port. `grace_secs`: how long
        answers may take that are under way when the server is stopped.
        """
        self._sock = sock
        self._grace_secs = grace_secs
        config = uvicorn.Config(
            self._until_stopped(app),
            log_config=None,
            access_log=False,
            lifespan="off",
            http=sending_files(BoundedConnection),
            ws="none",
            server_header=False,
            date_header=False,
            proxy_headers=False,  # every program of this machine could name another source
            backlog=1024,
            timeout_keep_alive=KEEP_ALIVE_SECS,
        )
        config.load()
        if tls is not None:
            config.ssl = tls.listening
            config.http_protocol_class = naming_peers(config.http_protocol_class)  # type: ignore[arg-type]
        self._server = _Embedded(config, plain_too=plain_too)
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
        """Resets a client's connection.

        Many clients take a plain end for the end of the answer, whatever length it promised.
        """
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
