"""Sends long parts of files over a plain connection by the kernel's sendfile, so that their bytes
never come into this process.

Always: a thread reads the file, because its bytes may have to come from a disk. The connection is
waited for in the event loop.
Never: send over TLS, whose bytes have to be encrypted here.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from torrentdist.host.process.heavy_work import until_ended
from torrentdist.model.errors import TorrentdistError

SEND_FILE: Final = "torrentdist.send_file"
"""The key of a connection's SendFile in the `state` of each scope. One with TLS has none."""
_AT_ONCE: Final = 4 * 1024 * 1024

Pulse = Callable[[], Awaitable[None]]
"""Called whenever the connection has taken some bytes. Its error ends the answer."""
SendFile = Callable[[int, int, int, Pulse], Awaitable[None]]
"""Sends the bytes of an open file from a place to another, as a part of the answer under way.
Returns early if the client is gone."""


def sending_files(protocol: type[H11Protocol]) -> type[H11Protocol]:
    """Returns the protocol, extended by a SendFile in the state of its requests."""

    class FileSending(protocol):  # type: ignore[valid-type, misc]
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            if transport.get_extra_info("socket") is not None and transport.get_extra_info("sslcontext") is None:
                self.app_state: dict[str, Any] = {**self.app_state, SEND_FILE: self._send_file}
            super().connection_made(transport)

        async def _send_file(self, file: int, start: int, end: int, pulse: Pulse) -> None:
            self.send_head()
            self.transport.set_write_buffer_limits(0)
            await self.flow.drain()  # until the head of the answer has gone
            self.transport.set_write_buffer_limits()
            if self.transport.is_closing():
                return
            self.conn.send_with_data_passthrough(h11.Data(data=_Length(end - start)))  # type: ignore[arg-type]
            # The event loop lets nobody else wait for a descriptor of its transports.
            own = os.dup(self.transport.get_extra_info("socket").fileno())
            try:
                await _send_all(own, file, start, end, pulse)
            except ConnectionError:
                self.transport.abort()
                await asyncio.sleep(0)  # the server hears of it before we return
            finally:
                os.close(own)

    return FileSending


class _Length:
    """Stands for bytes that h11 counts and does not send."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length


async def _send_all(connection: int, file: int, start: int, end: int, pulse: Pulse) -> None:
    while start < end:
        work = asyncio.ensure_future(asyncio.to_thread(_sent, connection, file, start, min(_AT_ONCE, end - start)))
        await until_ended(work)  # its descriptors are open until then
        count = work.result()
        if count is None:
            await _writable(connection)
        elif count:
            start += count
            await pulse()
        else:
            raise TorrentdistError("corrupt", path="a file that is sent", detail=f"it ends at {start}")


def _sent(connection: int, file: int, start: int, count: int) -> int | None:
    """Returns how many bytes were sent; None: the connection takes none for now. Blocks."""
    try:
        return os.sendfile(connection, file, start, count)
    except BlockingIOError:
        return None


async def _writable(connection: int) -> None:
    loop, writable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(connection, writable.set)
    try:
        await writable.wait()
    finally:
        loop.remove_writer(connection)
