"""Runs `ha init` and `ha restore`, which connect directly to the ZooKeeper that a daemon's
configuration names.

Always: the connection is closed at the end. Never: need a running daemon.
"""

from collections.abc import Awaitable, Callable

import msgspec

from torrentdist.cluster.records.tree_backup import check_restore, restore
from torrentdist.cluster.session.founding import check_founding, found_at
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.host.process.logs import configure_logs
from torrentdist.model.backup import Backup
from torrentdist.model.configuration.config import Config
from torrentdist.model.wire.ha_views import FoundedView, RestoreView

CONNECT_SECS = 15.0


async def run(config: Config, backup: Backup) -> RestoreView:
    return await _with_zookeeper(config, lambda zookeeper: restore(zookeeper, backup))


async def dry_run(config: Config, backup: Backup) -> RestoreView:
    return await _with_zookeeper(config, lambda zookeeper: check_restore(zookeeper, backup))


async def _with_zookeeper(config: Config, work: Callable[[ZooKeeper], Awaitable[RestoreView]]) -> RestoreView:
    configure_logs(msgspec.structs.replace(config.log, level="warning"), role="restore")
    zookeeper = ZooKeeper(config.zookeeper)
    try:
        await zookeeper.start(CONNECT_SECS)
        return await work(zookeeper)
    finally:
        await zookeeper.close()


async def init(config: Config) -> FoundedView:
    configure_logs(msgspec.structs.replace(config.log, level="warning"), role="init")
    return await found_at(config.zookeeper, CONNECT_SECS)


async def dry_init(config: Config) -> FoundedView:
    configure_logs(msgspec.structs.replace(config.log, level="warning"), role="init")
    return await check_founding(config.zookeeper, CONNECT_SECS)
