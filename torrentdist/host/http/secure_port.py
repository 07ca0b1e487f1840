"""Adds the client's certificate to each of uvicorn's requests, and opens a port that answers HTTPS
and plain HTTP.

Always: a request carries only a certificate that TLS has verified. A request over a connection
without TLS, or without a certificate of ours, carries none. A connection that sends no first byte
in time ends.
Never: decide what the holder may do.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from torrentdist.host.http.web import PEER
from torrentdist.security.tls_contexts import peer_of

_TLS_BEGINS: Final = b"\x16"
"""The first byte of a connection with TLS. No request of HTTP begins with it."""
FULL_SECS: Final = 1.0
"""Pause after a failure to accept, such as too many open files."""


def naming_peers(protocol: type[H11Protocol]) -> type[H11Protocol]:
    """Returns the protocol, extended by the peer's certificate in the state of each request."""

    class PeerNaming(protocol):  # type: ignore[valid-type, misc]
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            peer = peer_of(cast(dict[str, Any] | None, transport.get_extra_info("peercert")))
            if peer is not None:
                self.app_state: dict[str, Any] = {**self.app_state, PEER: peer}
            super().connection_made(transport)

    return PeerNaming


class TwoWayPort:
    """Accepts connections on a listening socket. Has close() and wait_closed() like an asyncio
    server."""

    def __init__(
        self, sock: socket.socket, protocol: Callable[[], asyncio.Protocol], context: ssl.SSLContext, secs: float
    ) -> None:
        """`secs`: how long a client may take for its first byte, and for its handshake."""
        self._sock = sock
        self._protocol = protocol
        self._context = context
        self._secs = secs
        self._tasks = {asyncio.create_task(self._accept(), name="accept")}

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        self._sock.setblocking(False)
        while True:
            try:
                client, _ = await loop.sock_accept(self._sock)
            except OSError:
                await asyncio.sleep(FULL_SECS)
                continue
            task = asyncio.create_task(self._open(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _open(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as unless_opened, contextlib.suppress(OSError, TimeoutError):
            unless_opened.callback(client.close)
            async with asyncio.timeout(self._secs):
                begins = await _first_byte(client)
            secure = begins == _TLS_BEGINS
            await loop.connect_accepted_socket(
                self._protocol,
                client,
                ssl=self._context if secure else None,
                ssl_handshake_timeout=self._secs if secure else None,
            )
            unless_opened.pop_all()


async def _first_byte(client: socket.socket) -> bytes:
    """Returns the first byte, and leaves it there for the next reader. Empty at the end."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(client, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(client)
    return client.recv(1, socket.MSG_PEEK)
