"""uvicorn inside a daemon: on a socket that is bound already, in the event loop that runs already.

Always: this is the only file that touches uvicorn's internals. tests/unit/test_uvicorn_adapter.py
checks that they are there, and pyproject.toml bounds the version.
Never: handle signals, or log requests; the daemon does.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError

log = get_logger()

KEEP_ALIVE_SECS = 75
"""Longer than any announce period, so that the agents' connections stay open."""


class _Embedded(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._exit = asyncio.Event()

    def exit(self) -> None:
        self.should_exit = True
        self._exit.set()

    async def main_loop(self) -> None:
        """Waits for the end. uvicorn's own loop wakes ten times a second to see whether it has
        come."""
        await self.on_tick(0)
        await self._exit.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the daemon handles its signals itself


class WebServer:
    """uvicorn on a socket that is already bound, in the event loop that is already running."""

    def __init__(self, app: ASGIApp, sock: socket.socket, *, grace_secs: float = 2.0) -> None:
        """`grace_secs`: how long answers may take that are under way when the server is stopped."""
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
            timeout_keep_alive=KEEP_ALIVE_SECS,
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
