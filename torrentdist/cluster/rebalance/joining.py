"""Joins a resource group.

Always: a join that fails or is cancelled leaves nothing behind.
"""

import socket

from torrentdist.cluster.paths import free_group
from torrentdist.cluster.rebalance.group_agreement import agree_on
from torrentdist.cluster.rebalance.group_records import Algorithm
from torrentdist.cluster.rebalance.resource_group import Callbacks, OnStart, OnStop, ResourceGroup, Settings
from torrentdist.cluster.session.zookeeper_session import ZooKeeper


async def join(
    zk: ZooKeeper,
    group: str,
    *,
    on_start: OnStart,
    on_stop: OnStop,
    algorithm: Algorithm = Algorithm.RESOURCE_BARRIER,
    member_id: str = "",
    settings: Settings | None = None,
    timeout: float = 30.0,
) -> ResourceGroup:
    """Makes this process a member until `leave()`.

    `on_start(resources)` begins work on exactly these resources, and returns. It is cancelled when
    the resources are no longer ours. `on_stop()` ends all work, including what a failed `on_start`
    began: when it returns or raises, nothing runs.
    """
    await agree_on(zk, free_group(group), algorithm)
    member = ResourceGroup(
        zk,
        group,
        callbacks=Callbacks(on_start, on_stop),
        algorithm=algorithm,
        member_id=member_id or socket.gethostname(),
        settings=settings or Settings(),
    )
    member.start()
    try:
        await member.wait_joined(timeout)
    except BaseException:
        await member.leave()
        raise
    return member
