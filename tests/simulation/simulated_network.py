"""A network in memory: connections between the addresses of processes, with delays, cuts and
resets.

Always: what one end writes arrives at the other in order. A cut link holds back what is written,
as TCP does, until it is mended or an end gives up. The death of a process resets its connections;
the death of a host leaves the other ends waiting.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any

from simulation.host_process import HERE, HostProcess
from simulation.memory_transport import MemoryTransport

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
        self.dark: set[str] = set()
        """Addresses of hosts without power. Nothing answers there, and no connection is reset."""
        self.slow_readers: set[str] = set()
        """Addresses that take a few bytes at a time."""
        self.torn: set[str] = set()
        """Addresses whose next write is cut in the middle by a reset."""
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
        while there in self.dark or not (self.passes(here.address, there) and self.passes(there, here.address)):
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
        self.slow_readers.clear()
        self.torn.clear()
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

    def read_slowly(self, address: str) -> None:
        self.slow_readers.add(address)

    def read_on(self, address: str) -> None:
        self.slow_readers.discard(address)
        self._changed()

    def power_off(self, address: str) -> None:
        self.dark.add(address)

    def power_on(self, address: str) -> None:
        """The host is back. It resets the connections of before on which something still comes."""
        if address in self.dark:
            self.dark.remove(address)
            for end in list(self._ends):
                if end.other[0] == address and end.peer is not None and not end.peer.process.alive:
                    end.peer.refuse_pending()
            self._changed()

    def process_died(self, process: HostProcess) -> None:
        for end in [end for end in self._ends if end.process is process]:
            self._ends.remove(end)
            if end.peer is not None and process.address not in self.dark:
                peer = end.peer
                peer.later(lambda peer=peer: peer.lose(ConnectionResetError(104, "reset")))  # type: ignore[misc]
        for key, owner in list(self._bound.items()):
            if owner is process:
                del self._bound[key]
                self._listeners.pop(key, None)
