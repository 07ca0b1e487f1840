"""Long parts of files that the kernel sends to a client."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send
from zookeeper_fixtures import eventually

from torrentdist.host.http.file_answers import SENT_BYTES, path_response
from torrentdist.host.http.file_sending import SEND_FILE
from torrentdist.host.http.http_conditions import Representation
from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.http.web import CutShort
from torrentdist.host.process.listening_sockets import bind_socket
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest

pytestmark = pytest.mark.anyio
SIZE = 24 * 1024 * 1024
"""More than the buffers of a connection hold."""
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    return path


@asynccontextmanager
async def served(
    path: Path, ways: list[bool], judge: Callable[[], None] = lambda: None
) -> AsyncIterator[Callable[[], Awaitable[Streams]]]:
    """Serves the file. Gives a function that connects. `ways`: whether each answer can be sent by
    the kernel. `judge`: called for each part that is sent."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def judged(message: Message) -> None:
            judge()
            await send(message)

        ways.append(SEND_FILE in scope["state"])
        response = path_response(Request(scope), path, Representation("tag", SIZE), Digest("0" * 64), "text/plain")
        await response(scope, receive, judged)

    web = WebServer(
        CutShort(answer, lambda client: web.cut(client)), bind_socket("127.0.0.1", 0, what="the test"), grace_secs=0.5
    )
    await web.start()

    async def connect() -> Streams:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", web.port))
        return await asyncio.open_connection(sock=sock)

    try:
        yield connect
    finally:
        await web.stop()


async def ask(streams: Streams, *fields: str, method: str = "GET") -> dict[str, str]:
    """Sends a request, and returns the fields of its answer's head."""
    reader, writer = streams
    writer.write("\r\n".join([f"{method} / HTTP/1.1", "Host: x", *fields, "", ""]).encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])} | {"": head[0]}


async def test_what_the_kernel_sends_is_the_file(path: Path) -> None:
    """If this fails, a client gets other bytes than were published, or hangs at the next
    request."""
    whole, ways = await asyncio.to_thread(path.read_bytes), list[bool]()
    async with served(path, ways) as connect:
        streams = await connect()
        first = await ask(streams)
        got = await streams[0].readexactly(int(first["content-length"]))
        second = await ask(streams, f"Range: bytes=5-{SENT_BYTES + 4}")
        part = await streams[0].readexactly(int(second["content-length"]))
        small = await ask(streams, "Range: bytes=7-9")
        few = await streams[0].readexactly(3)
        head = await ask(streams, method="HEAD")
        again = await ask(streams, "Range: bytes=0-1")
        streams[1].close()

    assert [True] * 5 == ways
    assert whole == got
    assert whole[5 : SENT_BYTES + 5] == part
    assert (b"HTTP/1.1 206", whole[7:10]) == (small[""][:12].encode(), few)
    assert (str(SIZE), "2") == (head["content-length"], again["content-length"])
    assert "206" in second[""]


def _write_into(path: Path) -> None:
    with open(path, "r+b") as stream:
        stream.write(b"other")


async def test_a_file_that_is_written_to_is_cut_off(path: Path) -> None:
    """If this fails, a client takes a damaged file for the published one."""
    async with served(path, []) as connect:
        streams = await connect()
        await ask(streams)
        await streams[0].readexactly(1000)
        await asyncio.to_thread(_write_into, path)
        with pytest.raises(ConnectionResetError):  # Java takes a plain end for a complete answer
            await streams[0].readexactly(SIZE - 1000)
        streams[1].close()


async def test_a_file_that_becomes_shorter_is_cut_off(path: Path) -> None:
    """If this fails, a client waits for ever for bytes that are gone."""
    async with served(path, []) as connect:
        streams = await connect()
        await ask(streams)
        await streams[0].readexactly(1000)
        os.truncate(path, SIZE // 2)
        with pytest.raises(ConnectionResetError):
            await streams[0].readexactly(SIZE - 1000)
        streams[1].close()


async def test_a_sender_that_is_revoked_gets_no_more_of_a_long_file(path: Path) -> None:
    """If this fails, a pod whose capability was revoked reads the rest of a file of any size."""
    revoked: list[str] = []

    def judge() -> None:
        if revoked:
            raise TorrentdistError("url_revoked", name="u")

    async with served(path, [], judge) as connect:
        streams = await connect()
        await ask(streams)
        await streams[0].readexactly(1000)
        revoked.append("u")
        with pytest.raises(ConnectionResetError):
            await streams[0].readexactly(SIZE - SIZE // 4)
        streams[1].close()


async def test_a_client_that_goes_leaves_nothing_open(path: Path) -> None:
    """If this fails, clients that give up use up a host's descriptors."""
    async with served(path, []) as connect:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            streams = await connect()
            await ask(streams)
            await streams[0].readexactly(1000)
            streams[1].transport.abort()
        await eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def test_a_client_that_takes_nothing_is_cut_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, clients that stand still use up a host's descriptors."""
    monkeypatch.setattr("torrentdist.host.http.file_sending.SLOW_SECS", 0.3)
    async with served(path, []) as connect:
        before = len(os.listdir("/proc/self/fd"))
        streams = await connect()
        await ask(streams)
        streams[0]._transport.pause_reading()  # type: ignore[attr-defined]
        # One descriptor is the client's own.
        await eventually(lambda: len(os.listdir("/proc/self/fd")) <= before + 1)
        streams[0]._transport.resume_reading()  # type: ignore[attr-defined]
        with pytest.raises(ConnectionResetError):
            await streams[0].readexactly(SIZE)
        streams[1].close()


async def test_a_slow_client_gets_the_whole_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a program that pauses while it reads gets half a file."""
    monkeypatch.setattr("torrentdist.host.http.file_sending.SLOW_SECS", 2.0)
    async with served(path, []) as connect:
        streams = await connect()
        await ask(streams)
        got = b""
        for _ in range(6):
            got += await streams[0].readexactly(SIZE // 6)
            await asyncio.sleep(0.5)  # in all it pauses for longer than it may at once
        streams[1].close()

    assert await asyncio.to_thread(path.read_bytes) == got


async def test_the_end_of_the_daemon_cuts_off_a_client_that_does_not_read(path: Path) -> None:
    """If this fails, a host cannot stop while a client stands still, or its answer ends like a
    complete one."""
    async with served(path, []) as connect:
        streams = await connect()
        await ask(streams)

    with pytest.raises(ConnectionResetError):
        await streams[0].readexactly(SIZE)
    streams[1].close()
