"""The local state in memory and on disk, changed one step at a time.

Always holds: `commit` returns when the change would survive a crash. `note` goes on without that when the disk fails:
what it tells of has happened already, and a restart finds it out again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from torrentdist.supervisor.jobs.local_state import LocalState, save_state

log = structlog.get_logger(__name__)

Change = Callable[[LocalState], LocalState]


class Ledger:
    def __init__(self, data_dir: Path, state: LocalState, on_change: Callable[[], None]) -> None:
        self._data_dir = data_dir
        self._on_change = on_change
        self._turn = asyncio.Lock()
        self.state = state

    async def commit(self, change: Change) -> None:
        async with self._turn:
            self.state = change(self.state)
            await asyncio.to_thread(save_state, self._data_dir, self.state)
        self._on_change()

    async def note(self, change: Change) -> None:
        try:
            await self.commit(change)
        except OSError as error:
            log.error("the workers' local state cannot be written", reason=str(error))
            self._on_change()
