"""What a simulated KazooClient and its server hand each other: answers and watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.kazoo_connection import KazooConnection


class Answer:
    """kazoo's AsyncResult, as far as it is used."""

    def __init__(self) -> None:
        self.value: Any = None
        self.exception: Exception | None = None
        self._links: list[Callable[[Any], None]] = []
        self._done = False

    def rawlink(self, call: Callable[[Any], None]) -> None:
        if self._done:
            call(self)
        else:
            self._links.append(call)

    def end(self, value: Any = None, exception: Exception | None = None) -> None:
        self.value, self.exception, self._done = value, exception, True
        for call in self._links:
            call(self)


class Wire:
    """Stands for kazoo's ConnectionHandler."""

    granted = 0.0

    def stop(self, _: float = 0.0) -> None:
        pass


class Watcher:
    """One watch at the server. It fires once."""

    def __init__(self, client: KazooConnection, call: Callable[[Any], None]) -> None:
        self._client = client
        self.call = call

    def __call__(self) -> None:
        if self._client.is_cut_off():
            return  # It is told when it is connected again.
        self._client._watchers.pop(self, None)
        self._client._reply(lambda: self.call(None), self._client.server.zxid)
