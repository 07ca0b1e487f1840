"""One end of a connection in memory.

Always: what one end writes arrives at the other in order, or not at all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from simulation.host_process import HostProcess

if TYPE_CHECKING:
    from simulation.simulated_network import Address, SimulatedNetwork


MOST_QUEUED = 64 * 1024
"""Bytes under way above which a writer has to wait."""
MOUTHFUL, MOUTHFUL_SECS = 2048, 0.2
"""What a slow reader takes at once, and how often."""


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, network: SimulatedNetwork, process: HostProcess, context: Context, own: Address, other: Address
    ) -> None:
        super().__init__({"sockname": own, "peername": other, "socket": _PeerSocket(own, other)})
        self._network, self.process, self._context = network, process, context
        self.own, self.other = own, other
        self.peer: MemoryTransport | None = None
        self._protocol: Any = None
        self._coming: deque[bytes | None] = deque()
        """What arrived, or is under way to here. None: the end."""
        self._due = 0.0
        self._queued, self._is_held_up, self._takes_again_at = 0, False, 0.0
        self._reading, self._closing, self._lost = True, False, False
        network._ends.append(self)

    def later(self, act: Callable[[], object], secs: float | None = None) -> None:
        """Runs `act` in this end's process, after everything that was to run there before."""
        loop = self._network.loop
        secs = self._network.delay(self.other[0], self.own[0]) if secs is None else secs
        self._due = max(self._due, loop.time() + secs)
        loop.call_at(self._due, act, context=self._context)

    def begin(self, protocol: Any) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        self.flow()

    # what the protocol calls

    def write(self, data: Any) -> None:
        if self._closing or self.peer is None or not data:
            return
        if self.own[0] in self._network.torn and len(data) > 1:
            self._network.torn.remove(self.own[0])
            self.peer._send(bytes(data[: len(data) // 2]))
            self.later(lambda: self.lose(ConnectionResetError(104, "Connection reset by peer")))
            self.abort()
            return
        self.peer._send(bytes(data))
        if self.peer._queued > MOST_QUEUED and not self._is_held_up:
            self._is_held_up = True
            self._protocol.pause_writing()

    def _go_on(self) -> None:
        """The other end has taken enough of what it was sent."""
        if self._is_held_up and not self._lost:
            self._is_held_up = False
            self._protocol.resume_writing()

    def write_eof(self) -> None:
        if self.peer is not None:
            self.peer._send(None)

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0 if self.peer is None else self.peer._queued

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.flow()

    def is_reading(self) -> bool:
        return self._reading

    def is_closing(self) -> bool:
        return self._closing

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def close(self) -> None:
        if not self._closing:
            self.write_eof()
            self._end(None)

    def abort(self) -> None:
        if not self._closing:
            if (peer := self.peer) is not None:
                peer.later(lambda: peer.lose(ConnectionResetError(104, "Connection reset by peer")))
            self._end(None)

    def _end(self, exc: Exception | None) -> None:
        self._closing = True
        self._network.loop.call_soon(self.lose, exc, context=self._context)

    # what arrives

    def _send(self, data: bytes | None) -> None:
        self._coming.append(data)
        self._queued += len(data or b"")
        if self.process.alive:
            self.later(self.flow)
        else:
            self.refuse_pending()

    def refuse_pending(self) -> None:
        """The host resets a connection of a process that it no longer has, unless it has no
        power."""
        if self._coming and self.own[0] not in self._network.dark and (peer := self.peer) is not None:
            peer.later(lambda: peer.lose(ConnectionResetError(104, "Connection reset by peer")))

    def flow(self) -> None:
        """Gives the protocol what has arrived."""
        while self._coming and self._reading and not self._lost and self._protocol is not None:
            if not self._network.passes(self.other[0], self.own[0]):
                return
            data = self._take()
            if data == b"":
                return
            if data is None:
                if not self._protocol.eof_received():
                    self.close()
            elif not self._closing:
                self._protocol.data_received(data)

    def _take(self) -> bytes | None:
        """Returns what is read next. None: the end. Empty: nothing yet, of a slow reader."""
        data = self._coming.popleft()
        if data is not None and self.own[0] in self._network.slow_readers:
            now = self._network.loop.time()
            if now < self._takes_again_at:
                self._coming.appendleft(data)
                return b""
            data, rest = data[:MOUTHFUL], data[MOUTHFUL:]
            if rest:
                self._coming.appendleft(rest)
            self._takes_again_at = now + MOUTHFUL_SECS
            self._network.loop.call_at(self._takes_again_at, self.flow, context=self._context)
        self._queued -= len(data or b"")
        if (peer := self.peer) is not None and peer._is_held_up and self._queued <= MOST_QUEUED // 4:
            peer.later(peer._go_on)
        return data

    def lose(self, exc: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        if self in self._network._ends:
            self._network._ends.remove(self)
        if self._protocol is not None:
            self._protocol.connection_lost(exc)


class _PeerSocket:
    """What uvicorn asks of a connection's socket."""

    def __init__(self, own: Address, other: Address) -> None:
        self._own, self._other = own, other

    def getpeername(self) -> Address:
        return self._other

    def getsockname(self) -> Address:
        return self._own

    def setsockopt(self, *_: object) -> None:
        pass

    def getsockopt(self, level: int, option: int, size: int = 0) -> bytes:
        raise OSError(92, "Protocol not available")
