"""Tells whether this master reaches ZooKeeper, and since when.

Hosts ask, because their workers run on while no master reaches ZooKeeper
(docs/decisions/0008-isolation.md).
Always: the time starts anew whenever this master says that it does not reach ZooKeeper. The leader
believes that a supervisor is absent only after such a time.
Never: trust an open connection. A frozen server keeps it open, so ZooKeeper has to answer a
question.
"""

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
        """The question that is under way. All hosts that ask at the same time share it."""
        zookeeper.on_state.append(self._on_state)

    def _on_state(self, _: SessionState) -> None:
        self._since = time.monotonic()

    def seen_for(self) -> float:
        """Returns for how many seconds this master has reached ZooKeeper without a gap."""
        connected = self._zookeeper.state is SessionState.CONNECTED
        return time.monotonic() - self._since if connected else 0.0

    async def sees(self, within: float) -> bool:
        """Returns whether ZooKeeper answers a question within `within` seconds."""
        question = self._question
        if question is None or question.done():
            question = self._question = asyncio.create_task(self._ask(), name="does ZooKeeper answer")
        done, _ = await asyncio.wait({question}, timeout=within)
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
