"""The background loops of a daemon: starts them by name, notices when one ends, and stops them
together.

Always: `failed` returns or raises when any loop ends, so that the daemon does not run on without
it. A loop that is repeated begins anew after each failure, after a pause that grows. Its failure is
logged once until it has run well for a while, and each failure is counted.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from torrentdist.log import get_logger
from torrentdist.model.backoff import Retry, kind_of

log = get_logger()

LOOP_FAILED: Final = "a loop of the daemon failed and begins anew"
"""The message about it in the log."""

FIRST_PAUSE_SECS: Final = 0.5
LONGEST_PAUSE_SECS: Final = 10.0
WELL_SECS: Final = 60.0
"""How long a loop runs until its earlier failures are forgotten."""

Run = Callable[[], Coroutine[Any, Any, None]]
"""Runs a loop from its beginning."""


async def repeated(name: str, run: Run, failures: Counter[str]) -> None:
    """Runs a loop, and runs it again whenever it fails. Returns when it does."""
    trouble = Retry(FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS)
    while True:
        began = time.monotonic()
        try:
            await run()
            return
        except Exception as error:
            failures[name] += 1
            if time.monotonic() - began >= WELL_SECS:
                trouble.succeeded()
            if trouble.failed(kind_of(error)):
                log.error(LOOP_FAILED, loop=name, reason=str(error), exc_info=error)
        await asyncio.sleep(trouble.pause_secs)


class Background:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Event = asyncio.Event()
        self.failures: Counter[str] = Counter()
        """How often each loop that begins anew has failed, by its name."""

    def repeat(self, name: str, run: Run) -> None:
        """Starts a loop that begins anew when it fails: what it lost, it finds again."""
        self.failures.setdefault(name, 0)
        self.spawn(name, repeated(name, run, self.failures))

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Starts a loop whose failure ends the daemon."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._ended.set())

    def once(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Runs a task that ends by itself. Its failure does not stop the daemon."""
        task = asyncio.create_task(work, name=name)
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)

    async def failed(self) -> None:
        """Returns when a loop has ended, or raises the loop's error."""
        await self._ended.wait()
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    @property
    def has_failed(self) -> bool:
        """Whether a loop has ended that should not."""
        return any(task.done() and not task.cancelled() for task in self._tasks)

    async def stop(self) -> None:
        tasks = [*self._tasks, *self._passing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
