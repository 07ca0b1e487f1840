"""What stands for the listening sockets and servers of a simulated host."""

from __future__ import annotations

from typing import Any

from simulation.host_process import HERE
from simulation.simulated_network import Address, SimulatedNetwork


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
