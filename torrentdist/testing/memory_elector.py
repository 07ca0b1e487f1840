"""A LeaderElector in memory, for tests of code around an election.

Always: there is at most one leader, the first in the queue whose gate says that it is ready. It
passes the same contract suite as the elector on ZooKeeper.
Never: fence anything, since there is nothing to write to.
"""

from __future__ import annotations

import asyncio
import contextlib

from torrentdist.cluster.election.elector import Gate
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId


class MemoryElection:
    """The election queue of one cluster."""

    def __init__(self, *, pause_secs: float = 0.05) -> None:
        self._pause_secs = pause_secs
        self._task: asyncio.Task[None] | None = None
        self.queue: list[MemoryElector] = []
        self.leader: MemoryElector | None = None

    def join(self, elector: MemoryElector) -> None:
        if elector not in self.queue:
            self.queue.append(elector)
            self._elect()

    async def leave(self, elector: MemoryElector) -> None:
        if elector not in self.queue:
            return
        self.queue.remove(elector)
        if self.leader is elector:
            self.leader = None
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._elect()

    def _elect(self) -> None:
        if self.leader is None and self.queue and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._until_one_leads(), name="memory election")

    async def _until_one_leads(self) -> None:
        unready = 0
        while self.leader is None and self.queue:
            first = self.queue[0]
            if await first.ready():
                self.leader = first
                return
            self.queue.append(self.queue.pop(0))  # it gives way, and queues again
            unready += 1
            await asyncio.sleep(self._pause_secs if unready >= len(self.queue) else 0)


class MemoryElector:
    """One master in the queue of a MemoryElection."""

    def __init__(self, election: MemoryElection, master: MasterId, ready: Gate) -> None:
        self._election = election
        self.master = master
        self.ready = ready

    async def queue_up(self) -> None:
        self._election.join(self)

    async def leave_queue(self) -> None:
        await self._election.leave(self)

    def is_leader(self) -> bool:
        return self._election.leader is self

    async def leader(self) -> MasterId:
        leader = self._election.leader
        if leader is None:
            raise TorrentdistError("no_leader")
        return leader.master

    async def candidates(self) -> list[MasterId]:
        return [elector.master for elector in self._election.queue]
