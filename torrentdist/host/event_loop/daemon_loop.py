"""The event loop of a daemon. It looks up names in threads of its own: a DNS server that is slow or
away would else keep those that read files, check bundles and note leases.

Always: a name is looked up once at a time, whoever asks. A lookup goes on after all who asked have
given up, and what it finds is kept. While a lookup takes long, or no server answers it, what an
earlier one has found counts.
Never: go on with a name of which DNS says that it does not exist.
"""

import asyncio
import functools
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

AT_ONCE: Final = 16
"""A lookup takes its thread for half a minute or longer where no server answers."""
PATIENCE_SECS: Final = 0.1
"""How long to wait for a lookup whose name was found before: less than any attempt to connect may
take."""
MOST_FOUND: Final = 10_000
_ABSENT: Final = (socket.EAI_NONAME, socket.EAI_NODATA)

_Question = tuple[Any, ...]
_Addresses = list[Any]


class DaemonLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._name_threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="names")
        self._lookups: dict[_Question, tuple[float, asyncio.Future[_Addresses]]] = {}
        """When each lookup began that is under way."""
        self._found: dict[_Question, _Addresses] = {}

    async def getaddrinfo(self, host: Any, port: Any, **how: int) -> _Addresses:
        """asyncio calls this for each connection to a name, and not for addresses."""
        question = (host, port, *sorted(how.items()))
        if question not in self._lookups:
            self._look_up(question, functools.partial(socket.getaddrinfo, host, port, **how))
        began, lookup = self._lookups[question]
        patience = max(0.0, began + PATIENCE_SECS - self.time()) if question in self._found else None
        await asyncio.wait({lookup}, timeout=patience)
        found = self._found.get(question)
        return await asyncio.shield(lookup) if found is None else found

    def _look_up(self, question: _Question, look: functools.partial[_Addresses]) -> None:
        lookup = self.run_in_executor(self._name_threads, look)
        self._lookups[question] = self.time(), lookup
        lookup.add_done_callback(functools.partial(self._note, question))

    def _note(self, question: _Question, ended: asyncio.Future[_Addresses]) -> None:
        del self._lookups[question]
        error = None if ended.cancelled() else ended.exception()
        if isinstance(error, socket.gaierror) and error.errno in _ABSENT:
            self._found.pop(question, None)
        elif error is None and not ended.cancelled():
            self._found.pop(question, None)
            self._found[question] = ended.result()
            if len(self._found) > MOST_FOUND:
                del self._found[next(iter(self._found))]

    def close(self) -> None:
        for _, lookup in self._lookups.values():
            lookup.cancel()  # else its thread tells a closed loop, in Python 3.11.2
        self._name_threads.shutdown(wait=False, cancel_futures=True)
        super().close()
