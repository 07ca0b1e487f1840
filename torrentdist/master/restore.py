"""`torrentdist ha restore` at work: a backup into the ZooKeeper of a master's configuration, without any master."""

from __future__ import annotations

import msgspec

from torrentdist.cluster.backup import restore
from torrentdist.cluster.zookeeper import ZooKeeper
from torrentdist.host.logs import configure_logs
from torrentdist.model.backup import Backup
from torrentdist.model.config import Config
from torrentdist.model.ha_views import RestoreView

CONNECT_SECS = 15.0


async def run(config: Config, backup: Backup) -> RestoreView:
    configure_logs(msgspec.structs.replace(config.log, level="warning"), role="restore")
    zookeeper = ZooKeeper(config.zookeeper)
    try:
        await zookeeper.start(CONNECT_SECS)
        return await restore(zookeeper, backup)
    finally:
        await zookeeper.close()
