"""Sends long parts of files over a plain connection by the kernel's sendfile, so that their bytes
never come into this process.

Always: a thread reads the file, because its bytes may have to come from a disk. The connection is
waited for in the event loop. A client that takes less than LEAST_RATE is cut off in the end: it
would keep a descriptor for as long as it likes.
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
SLOW_SECS: Final = 300.0
"""Longest time that a client may take nothing."""
LEAST_RATE: Final = 16 * 1024
"""Bytes per second that a client has to take, on average after SLOW_SECS."""

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
    loop, patience = asyncio.get_running_loop(), SLOW_SECS
    while start < end:
        work = asyncio.ensure_future(asyncio.to_thread(_sent, connection, file, start, min(_AT_ONCE, end - start)))
        await until_ended(work)  # its descriptors are open until then
        count = work.result()
        if count is None:
            began = loop.time()
            await _writable(connection, patience)
            patience -= loop.time() - began
        elif count:
            start += count
            patience = min(SLOW_SECS, patience + count / LEAST_RATE)
            await pulse()
        else:
            raise TorrentdistError("corrupt", path="a file that is sent", detail=f"it ends at {start}")


def _sent(connection: int, file: int, start: int, count: int) -> int | None:
    """Returns how many bytes were sent; None: the connection takes none for now. Blocks."""
    try:
        return os.sendfile(connection, file, start, count)
    except BlockingIOError:
        return None


async def _writable(connection: int, patience: float) -> None:
    """Waits until the connection takes bytes. Raises `timed_out` after `patience` seconds."""
    loop, writable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(connection, writable.set)
    try:
        async with asyncio.timeout(patience):
            await writable.wait()
    except TimeoutError:
        what = f"sending a file to a client that takes less than {LEAST_RATE // 1024} KiB a second"
        raise TorrentdistError("timed_out", what=what, seconds=SLOW_SECS) from None
    finally:
        loop.remove_writer(connection)
