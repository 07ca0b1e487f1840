"""A member of a resource group as a process: it works until SIGTERM, then leaves. Its one argument
is JSON."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from group_members import QUICK, Worker
from group_oracle import Oracle

from torrentdist.cluster.rebalance import Algorithm
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.configuration.config import ZooKeeperConfig

ACT_SECS = 0.05


class ActsOnly(Worker):
    """A member for processes that are paused. A lock that it held during the pause would make the
    rightful owner look like an overlap."""

    async def on_start(self, resources: Any) -> None:
        self.working_on = resources

    async def on_stop(self) -> None:
        self.working_on = {}


async def main(told: dict[str, Any]) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    config = ZooKeeperConfig(
        servers=[told["server"]],
        chroot=told["chroot"],
        session_timeout_secs=told.get("session_secs", 2.0),
        operation_timeout_secs=1.0,
    )
    zk = ZooKeeper(config)
    await zk.start(30.0)
    kind = ActsOnly if told["paused"] else Worker
    worker = await kind(zk, told["name"], Oracle(Path(told["oracle"]))).join(Algorithm(told["algorithm"]), QUICK)
    while not over.is_set():
        worker.act()
        await asyncio.sleep(ACT_SECS)
    await worker.leave()
    await zk.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
