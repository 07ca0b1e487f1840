"""Reads whole pieces out of libtorrent, and puts in pieces that came by another way than a peer.

Always: libtorrent checks the hash of a piece that is put in. A read ends, also if the torrent
leaves the session meanwhile.
Never: read or write files.
"""

import asyncio
import contextlib
from typing import Final

import libtorrent as lt

READ_SECS: Final = 10.0


class WholePieces:
    """The whole pieces of one transfer."""

    def __init__(self) -> None:
        self.received = 0
        """Bytes that were put in."""
        self._reading: dict[int, asyncio.Future[bytes]] = {}

    async def read(self, piece: int, handle: lt.torrent_handle | None) -> bytes:
        """Returns a verified piece; nothing if libtorrent cannot read it."""
        if handle is None:
            return b""
        future = self._reading.get(piece)
        if future is None:
            future = self._reading[piece] = asyncio.get_running_loop().create_future()
            with contextlib.suppress(RuntimeError):  # The torrent may have left the session.
                handle.read_piece(piece)
        try:
            async with asyncio.timeout(READ_SECS):
                return await asyncio.shield(future)
        except TimeoutError:
            self._reading.pop(piece, None)
            return b""

    def take(self, piece: int, content: bytes, handle: lt.torrent_handle | None) -> None:
        """Puts in a piece, unless it is here."""
        if handle is not None:
            self.received += len(content)
            with contextlib.suppress(RuntimeError):  # The torrent may have left the session.
                handle.add_piece(piece, content, 0)

    def on_read(self, alert: lt.read_piece_alert) -> None:
        future = self._reading.pop(int(alert.piece), None)
        if future is not None and not future.done():
            future.set_result(b"" if alert.error.value() else bytes(alert.buffer))
