"""A master's route for files on a free loopback port, with the faults that a downloader must
survive.

Always: it answers `GET /v1/bundles/{id}/files/{path}` as docs/protocol.md says, with authentication
and ranges.
"""

import asyncio
import socket
from collections.abc import Callable
from enum import Enum
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torrentdist.model.errors import TorrentdistError


class AnyFilePath(PathConvertor):
    """Matches any path. Starlette's own `path` stops at a line break, which a name may contain."""

    regex = r"[\s\S]*"


register_url_convertor("any_path", AnyFilePath())

FindFile = Callable[[str, str], Path]
"""Gives the file on disk for a bundle's id and a path in it. A TorrentdistError becomes the
answer."""


class FileFault(Enum):
    NONE = "none"
    CUT = "cut"
    """The connection breaks in the middle of every file."""
    SILENT = "silent"
    """Connections are accepted and never answered."""
    DAMAGED = "damaged"
    """One byte of every file is wrong."""


class FileServer:
    """Serves files. Its port stays the same when it is started again."""

    def __init__(self, find_file: FindFile, token: str) -> None:
        self.fault = FileFault.NONE
        self.asked: list[tuple[str, str | None]] = []
        """The paths of the requested files, each with its range."""
        self._find_file = find_file
        self._token = token
        self._port = 0
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self._port))
        listening.listen(128)
        self._port = listening.getsockname()[1]
        config = uvicorn.Config(self._app(), log_config=None, lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listening]))

    async def stop(self) -> None:
        """Refuses connections from now on, breaks the open ones, and returns when their files are
        closed."""
        if self._server is None or self._serving is None:
            return
        self._serving.cancel()  # uvicorn's own shutdown takes up to 0.1 s to begin, and is polite
        await asyncio.gather(self._serving, return_exceptions=True)
        for listening in getattr(self._server, "servers", []):
            listening.close()
        for connection in list(self._server.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.gather(*self._server.server_state.tasks, return_exceptions=True)
        self._server = self._serving = None

    def _app(self) -> ASGIApp:
        routes = [Route("/v1/bundles/{id}/files/{path:any_path}", self._file)]
        return _Faulty(Starlette(routes=routes), lambda: self.fault)

    async def _file(self, request: Request) -> Response:
        self.asked.append((request.path_params["path"], request.headers.get("Range")))
        try:
            if request.headers.get("Authorization") != f"Bearer {self._token}":
                raise TorrentdistError("unauthorized")
            return FileResponse(self._find_file(request.path_params["id"], request.path_params["path"]))
        except TorrentdistError as exc:
            return JSONResponse(exc.to_wire(), exc.http_status)


class _Broken(Exception):
    """Ends a response in the middle. uvicorn closes the connection then."""


class _Faulty:
    """Stands between the routes and the socket, and spoils what passes."""

    def __init__(self, app: ASGIApp, fault: Callable[[], FileFault]) -> None:
        self._app = app
        self._fault = fault

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = self._fault()
        if fault is FileFault.SILENT:
            while (await receive())["type"] != "http.disconnect":
                pass
            return

        async def spoilt(message: Message) -> None:
            body = message.get("body", b"")
            if fault is FileFault.CUT and body:
                await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
                raise _Broken
            if fault is FileFault.DAMAGED and body:
                message = {**message, "body": bytes([body[0] ^ 1]) + body[1:]}
            await send(message)

        await self._app(scope, receive, send if fault is FileFault.NONE else spoilt)
