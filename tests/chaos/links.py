"""The connections of each daemon to ZooKeeper's servers: they go through this process, which can
break them in every way.

Always: bytes that are held up are delivered later in order, or never, and are not changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from chaos.schedule import Way


@dataclass(frozen=True)
class Session:
    """The session that ZooKeeper gave the daemon. With its id and password, another client can take
    it over and end it."""

    id: int
    password: bytes


class Links:
    """All connections of one daemon."""

    def __init__(self, servers: Sequence[str], address: str) -> None:
        """`address`: the address at which the daemon reaches this proxy."""
        self._servers = servers
        self._address = address
        self._listeners: list[asyncio.Server] = []
        self._open: set[asyncio.StreamWriter] = set()
        self._refuses = False
        self._requests, self._answers = asyncio.Event(), asyncio.Event()
        self.session: Session | None = None
        self.addresses: list[str] = []

    async def start(self) -> None:
        self.mend()
        for server in self._servers:
            host, _, port = server.rpartition(":")
            listener = await asyncio.start_server(partial(self._serve, host, int(port)), self._address, 0)
            self._listeners.append(listener)
            self.addresses.append(f"{self._address}:{listener.sockets[0].getsockname()[1]}")

    async def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        self.drop()
        self.mend()
        await asyncio.sleep(0)

    def cut(self, way: Way) -> None:
        match way:
            case Way.REFUSED:
                self._refuses = True
                self.drop()
            case Way.SILENT:
                self._requests.clear()
                self._answers.clear()
            case Way.NO_REQUESTS:
                self._requests.clear()
            case Way.NO_ANSWERS:
                self._answers.clear()

    def mend(self) -> None:
        self._refuses = False
        self._requests.set()
        self._answers.set()

    def drop(self) -> None:
        """Breaks every open connection; new ones are accepted."""
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        self._open.add(writer)
        try:
            if not self._refuses:
                back, there = await asyncio.open_connection(host, port)
                ends.append(there)
                self._open.add(there)
                await asyncio.gather(
                    self._copy(reader, there, self._requests), self._copy(back, writer, self._answers, told=True)
                )
        except OSError:
            pass
        finally:
            for end in ends:
                self._open.discard(end)
                end.transport.abort()

    async def _copy(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event, told: bool = False
    ) -> None:
        while data := await source.read(65536):
            await gate.wait()
            if told:
                self.session, told = session_in(data) or self.session, False
            sink.write(data)
            with contextlib.suppress(ConnectionError):
                await sink.drain()
        raise ConnectionResetError


def session_in(answer: bytes) -> Session | None:
    """Returns the session that the first answer on a connection grants; None for a refusal."""
    if len(answer) < 40:
        return None
    _, _, timeout, session, size = struct.unpack_from(">iiiqi", answer)
    if timeout <= 0 or size != 16:
        return None
    return Session(session, answer[24:40])
