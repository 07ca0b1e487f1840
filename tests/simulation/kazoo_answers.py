"""What a simulated KazooClient and its server hand each other: answers and watches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.kazoo_connection import KazooConnection


SENT_AGAIN_SECS = 0.2


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


class Lane:
    """What goes one way over a connection, in order. What a cut link holds up arrives once the link
    is mended, because TCP sends it again."""

    def __init__(self, passes: Callable[[], bool], later: Callable[..., None]) -> None:
        self._passes, self._later = passes, later
        self._waiting: deque[Callable[[], None]] = deque()
        self._tries_again = False

    def arrive(self, act: Callable[[], None]) -> None:
        self._waiting.append(act)
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._passes():
            self._waiting.popleft()()
        if self._waiting and not self._tries_again:
            self._tries_again = True
            self._later(SENT_AGAIN_SECS, self._again)

    def _again(self) -> None:
        self._tries_again = False
        self._go_on()


class Watcher:
    """One watch at the server. It fires once."""

    def __init__(self, client: KazooConnection, call: Callable[[Any], None]) -> None:
        self._client = client
        self.call = call

    def __call__(self) -> None:
        if self._client.is_cut_off():
            return  # It is told when it is connected again.
        self._client._reply(self._fired, self._client.server.zxid)

    def _fired(self) -> None:
        self._client._watchers.pop(self, None)
        self.call(None)
