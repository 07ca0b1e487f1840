"""Whether this master sees ZooKeeper: asked by hosts whose workers run on while no master does (0008-isolation.md).

Always holds: the time for which it has seen ZooKeeper begins anew with every answer that it does not, and the leader
takes an absence for one only after such a time. Must not do: call a connection that is open a sight of ZooKeeper: a
frozen server keeps it open.
"""

from __future__ import annotations

import asyncio
import time

from torrentdist.cluster import paths
from torrentdist.cluster.session.znode_operations import SessionState
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.errors import TorrentdistError


class ZooKeeperReachability:
    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._since = time.monotonic()
        self._question: asyncio.Task[bool] | None = None
        """The one that is under way: many hosts ask at once."""
        zookeeper.on_state.append(self._on_state)

    def _on_state(self, _: SessionState) -> None:
        self._since = time.monotonic()

    def seen_for(self) -> float:
        """Seconds without a gap, and without an answer that there was one."""
        connected = self._zookeeper.state is SessionState.CONNECTED
        return time.monotonic() - self._since if connected else 0.0

    async def sees(self, within: float) -> bool:
        """Whether ZooKeeper answers a question within so many seconds."""
        question = self._question
        if question is None or question.done():
            question = self._question = asyncio.create_task(self._ask(), name="does ZooKeeper answer")
        done, _ = await asyncio.wait({question}, timeout=within)  # meanwhile somebody else may put the next one
        if done and question.result():
            return True
        self._since = time.monotonic()
        return False

    async def _ask(self) -> bool:
        if self._zookeeper.state is not SessionState.CONNECTED:
            return False
        try:
            await self._zookeeper.exists(paths.CLUSTER)
        except TorrentdistError:
            return False
        return True
