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
        self.peer._send(bytes(data))

    def write_eof(self) -> None:
        if self.peer is not None:
            self.peer._send(None)

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

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
        self.later(self.flow)

    def flow(self) -> None:
        """Gives the protocol what has arrived."""
        while self._coming and self._reading and not self._lost and self._protocol is not None:
            if not self._network.passes(self.other[0], self.own[0]):
                return
            data = self._coming.popleft()
            if data is None:
                if not self._protocol.eof_received():
                    self.close()
            elif not self._closing:
                self._protocol.data_received(data)

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
