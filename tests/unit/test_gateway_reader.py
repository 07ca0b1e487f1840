"""What the file system makes of the gateway's answers, and of another program's on that port."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from patience import patient
from raw_http_server import served

from torrentdist.doors.gateway_reader import GatewayAway, GatewayReader
from torrentdist.model.errors import TorrentdistError

pytestmark = pytest.mark.anyio


async def asked(body: bytes) -> Path | None:
    """Returns where a bundle lies by this answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()

    async with served(serve) as (server, _):
        return await asyncio.to_thread(GatewayReader(server.url).local, "etl-1")


@pytest.mark.parametrize("body", [b"hello", b"[]", b"null", b'{"state": "done", "path": 7}', b"\xff", b"[" * 100_000])
async def test_another_program_on_the_port_is_no_gateway(body: bytes) -> None:
    """If this fails, a read ends with a traceback, though the bundle can come from elsewhere."""
    with pytest.raises(GatewayAway):
        await asked(body)


async def test_the_gateway_tells_where_a_bundle_lies() -> None:
    """If this fails, files of this host are read through another process, or too early."""
    assert Path("/a") == await asked(b'{"state": "done", "path": "/a"}')
    assert await asked(b'{"state": "fetching", "path": "/a"}') is None


async def test_a_gateway_without_a_port_in_its_address_is_asked_at_the_port_of_http() -> None:
    """Where a gateway listens on port 80, every file of its host would be fetched anew."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"state": "done", "path": "/a"}')
        writer.close()

    try:
        server = await asyncio.start_server(serve, "127.80.0.1", 80)
    except OSError as exc:
        pytest.skip(f"port 80 is not to be had: {exc}")
    async with server:
        assert Path("/a") == await asyncio.to_thread(GatewayReader("http://127.80.0.1").local, "etl-1")


@pytest.mark.parametrize(
    ("length", "body", "code"), [(10**12, b"12345", "corrupt"), (4, b"12", "supervisor_unreachable"), (4, b"1234", "")]
)
async def test_no_more_is_read_than_was_asked_for(length: int, body: bytes, code: str) -> None:
    """If this fails, another program on the gateway's port fills the memory of a reader."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\n\r\n%s" % (length, body))
        await writer.drain()
        if length > 4:
            await over.wait()

    async with served(serve) as (server, _):
        try:
            async with asyncio.timeout(patient(20)):
                found = await asyncio.to_thread(GatewayReader(server.url).read, "etl-1", "a", 0, 4)
        except TorrentdistError as error:
            found = error.code.encode()
        finally:
            over.set()

    assert (code.encode() or body) == found
