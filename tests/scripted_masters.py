"""Small servers that play masters by a script, for tests of which master the client asks and how it
reads the answers.

Always: requests are recorded in order.
Never: answer more than one request on a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.configuration.config import ClientConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import bundle_id

BUNDLE = {
    "id": "etl-1", "digest": "ab" * 32, "size": 5, "files": 1, "replicas": 1, "min_replicas": 1, "holders": ["m1"],
    "created_at": 1.0, "state": "available", "pinned": False,
}  # fmt: skip
ETL = bundle_id("etl-1")


@dataclass(frozen=True)
class Heard:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Answer = tuple[int, dict[str, Any] | bytes] | tuple[int, dict[str, Any] | bytes, dict[str, str]] | None


@dataclass
class Master:
    """Answers by `script`. None breaks the connection after the request was heard."""

    script: Callable[[Heard], Answer] = lambda heard: (200, BUNDLE)
    heard: list[Heard] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    url: str = ""
    server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        if self.server is not None:
            self.server.close()
            await self.server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._exchange(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        heard = Heard(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))
        self.heard.append(heard)
        self.at.append(time.monotonic())
        answer = self.script(heard)
        if answer is None:
            return
        body = answer[1] if isinstance(answer[1], bytes) else json.dumps(answer[1]).encode()
        extra = "".join(f"{k}: {v}\r\n" for k, v in (answer[2] if len(answer) == 3 else {}).items())
        head = f"HTTP/1.1 {answer[0]} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{extra}\r\n"
        writer.write(head.encode() + body)
        await writer.drain()


def error(code: str, **more: Any) -> Answer:
    fields = more.pop("fields", {})
    wire = TorrentdistError(code, extra=more, **fields)
    return wire.http_status, wire.to_wire()


def standby(leader: str | None, *masters: str) -> Callable[[Heard], Answer]:
    return lambda heard: error("not_leader", leader=leader, masters=list(masters))


@contextlib.asynccontextmanager
async def cluster(*masters: Master) -> AsyncIterator[None]:
    for master in masters:
        await master.start()
    try:
        yield
    finally:
        for master in masters:
            await master.stop()


def client(*masters: str, deadline: float = 20.0, token_file: str = "", **options: Any) -> MasterClient:
    config = ClientConfig(masters=list(masters), deadline_secs=deadline, token_file=token_file)
    return MasterClient(config, **options)
