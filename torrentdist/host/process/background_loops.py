"""The background loops of a daemon: starts them by name, notices when one ends, and stops them
together.

Always: `failed` returns or raises when any loop ends, so that the daemon does not run on without
it.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Background:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Event = asyncio.Event()

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
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
