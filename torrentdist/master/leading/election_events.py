"""Writes elections to the log of events: the new leader, the previous one, and the time between.
It knows the last ones of all masters.

Always: the master that ends the time without a leader measures it, on its own clock.
Never: influence an election.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.session.znode_operations import ZNodeError
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import Fact, LeaderElected
from torrentdist.model.records import FailoverRecord


class Elections:
    def __init__(
        self, mirror: Mirror, tell: Callable[[Fact], None], last: Callable[[], Awaitable[list[FailoverRecord]]]
    ) -> None:
        self._mirror = mirror
        self._tell = tell
        self._last_failovers = last
        self.recent: list[FailoverRecord] = []
        """The last failovers, the newest first."""
        self._vacant_since: float | None = None
        self._won: asyncio.Queue[tuple[int, float | None]] = asyncio.Queue()

    def won(self, epoch: int) -> None:
        vacant = None if self._vacant_since is None else time.monotonic() - self._vacant_since
        self._won.put_nowait((epoch, vacant))

    async def run(self) -> None:
        """Tells of the elections that this master won, for ever."""
        while True:
            epoch, vacant = await self._won.get()
            await self._tell_won(epoch, vacant)

    async def watch(self) -> None:
        """Notes since when nobody leads, and reads the last failovers, for ever."""
        epoch = -1
        while True:
            snapshot = self._mirror.snapshot
            if snapshot.epoch != epoch and (found := await self._read()):
                epoch, self.recent = snapshot.epoch, found
            if snapshot.leader is not None or not snapshot.present:
                self._vacant_since = None
            elif self._vacant_since is None:
                self._vacant_since = time.monotonic()
            await self._mirror.changed(snapshot.version)

    async def _tell_won(self, epoch: int, vacant: float | None) -> None:
        found = await self._read()
        last = found[0] if found else None
        previous, reason = ("", "") if last is None else (last.previous or "", last.reason)
        self._tell(LeaderElected(epoch=epoch, previous=previous, reason=reason, vacant_secs=vacant))

    async def _read(self) -> list[FailoverRecord]:
        """Returns nothing while they cannot be read."""
        try:
            return await self._last_failovers()
        except (TorrentdistError, ZNodeError):
            return []
