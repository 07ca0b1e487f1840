"""The loops of a daemon: started by name, watched, ended together.

Always holds: a loop that ends, for whatever reason, is noticed by `failed`; the daemon doesn't limp
on without it.
"""

from __future__ import annotations

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
        """A piece of work that ends by itself; its failure is not the daemon's."""
        task = asyncio.create_task(work, name=name)
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)

    async def failed(self) -> None:
        """Return when some loop has ended, raising what it ended with."""
        await self._ended.wait()
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def stop(self) -> None:
        tasks = [*self._tasks, *self._passing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
