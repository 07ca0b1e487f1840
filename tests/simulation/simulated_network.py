"""A network in memory: connections between the addresses of processes, with delays, cuts and
resets.

Always: what one end writes arrives at the other in order. A cut link holds back what is written,
as TCP does, until it is mended or an end gives up. The death of a process resets its connections;
the death of a host leaves the other ends waiting.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any

from simulation.host_process import HERE, HostProcess

Address = tuple[str, int]
DELAY_SECS = (0.0001, 0.0015)
LOOPBACK = ("127.0.0.1", "localhost", "0.0.0.0")


@dataclass
class _Listener:
    process: HostProcess
    connect: Callable[[], asyncio.Protocol]
    context: Context


class SimulatedNetwork:
    def __init__(self, loop: asyncio.AbstractEventLoop, rng: random.Random) -> None:
        self.loop, self.rng = loop, rng
        self._bound: dict[Address, HostProcess] = {}
        self._listeners: dict[Address, _Listener] = {}
        self._next_port = 20_000
        self.cut_links: set[tuple[str, str]] = set()
        """Pairs of addresses: nothing goes from the first to the second."""
        self.slow_links: dict[tuple[str, str], float] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._ends: list[MemoryTransport] = []

    # the socket interface of a host

    def bind(self, process: HostProcess, address: Address) -> Address:
        host = process.address if address[0] in LOOPBACK and address[0] != "127.0.0.1" else address[0]
        key = (self._own(process, host), address[1] or self.free_port())
        owner = self._bound.get(key)
        if owner is not None and owner.alive:
            raise OSError(98, "Address already in use")
        self._bound[key] = process
        self._listeners.pop(key, None)
        return host, key[1]

    def release(self, process: HostProcess, address: Address) -> None:
        key = (self._own(process, address[0]), address[1])
        if self._bound.get(key) is process:
            del self._bound[key]
            self._listeners.pop(key, None)

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def listen(self, address: Address, connect: Callable[[], asyncio.Protocol]) -> None:
        process = HERE.get()
        self._listeners[self._own(process, address[0]), address[1]] = _Listener(process, connect, copy_context())

    @staticmethod
    def _own(process: HostProcess, host: str) -> str:
        return f"127.0.0.1@{process.address}" if host in LOOPBACK else host

    # connecting

    def passes(self, source: str, target: str) -> bool:
        return source == target or (source, target) not in self.cut_links

    def delay(self, source: str, target: str) -> float:
        return self.rng.uniform(*DELAY_SECS) + self.slow_links.get((source, target), 0.0)

    async def connect(self, make: Callable[[], asyncio.Protocol], host: str, port: int) -> tuple[Any, Any]:
        here, key = HERE.get(), (self._own(HERE.get(), host), port)
        there = here.address if host in LOOPBACK else host
        await asyncio.sleep(self.delay(here.address, there))
        while not (self.passes(here.address, there) and self.passes(there, here.address)):
            await self._mended()
        listener = self._listeners.get(key)
        owner = self._bound.get(key)
        if owner is not None and owner.alive and owner.held is not None:
            await asyncio.sleep(3600.0)  # The kernel of a paused process accepts, and nothing answers.
        if listener is None or not listener.process.alive:
            raise ConnectionRefusedError(111, "Connection refused")
        ours = MemoryTransport(self, here, copy_context(), (here.address, self.free_port()), (there, port))
        theirs = MemoryTransport(self, listener.process, listener.context.copy(), (there, port), ours.own)
        ours.peer, theirs.peer = theirs, ours
        protocol = make()
        theirs.later(lambda: theirs.begin(listener.connect()))
        ours.begin(protocol)
        return ours, protocol

    async def _mended(self) -> None:
        mended: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append(mended)
        await mended

    # faults

    def mend(self) -> None:
        self.cut_links.clear()
        self.slow_links.clear()
        self._changed()

    def cut(self, links: set[tuple[str, str]]) -> None:
        self.cut_links |= links

    def uncut(self, links: set[tuple[str, str]]) -> None:
        self.cut_links -= links
        self._changed()

    def _changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for mended in waiting:
            if not mended.done():
                mended.set_result(None)
        for end in list(self._ends):
            end.flow()

    def reset_one(self) -> str | None:
        """Resets one of the open connections. Returns whose."""
        open_ends = [end for end in self._ends if not end.is_closing() and end.process.alive]
        if not open_ends:
            return None
        end = self.rng.choice(open_ends)
        end.later(lambda: end.lose(ConnectionResetError(104, "Connection reset by peer")))
        end.abort()
        return f"{end.own[0]} to {end.other[0]}"

    def process_died(self, process: HostProcess, *, host_too: bool) -> None:
        for end in [end for end in self._ends if end.process is process]:
            self._ends.remove(end)
            if end.peer is not None and not host_too:
                peer = end.peer
                peer.later(lambda peer=peer: peer.lose(ConnectionResetError(104, "reset")))  # type: ignore[misc]
        for key, owner in list(self._bound.items()):
            if owner is process:
                del self._bound[key]
                self._listeners.pop(key, None)


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


class SimulatedServer:
    """What a loop's `create_server` returns."""

    def __init__(self) -> None:
        self.sockets: list[Any] = []

    def close(self) -> None:
        pass

    async def wait_closed(self) -> None:
        pass


class SimulatedSocket:
    """A listening socket of a simulated host. Stands for socket.socket."""

    network: SimulatedNetwork

    def __init__(self, *_: object, **__: object) -> None:
        self._address: Address = ("0.0.0.0", 0)
        self._process = HERE.get()

    def setsockopt(self, *_: object) -> None:
        pass

    def setblocking(self, _: bool) -> None:
        pass

    def bind(self, address: Address) -> None:
        self._address = self.network.bind(self._process, address)

    def listen(self, _: int = 0) -> None:
        pass

    def getsockname(self) -> Address:
        return self._address

    def close(self) -> None:
        self.network.release(self._process, self._address)
