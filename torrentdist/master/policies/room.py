"""The policies' room of a master: distributions in waves, retention rules."""

from torrentdist.host.process.room import Loop, Room, When
from torrentdist.master.leading.room import LeadingRoom
from torrentdist.master.master_core import MasterCore
from torrentdist.master.policies.distribution_orders import DistributionOperations
from torrentdist.master.policies.policy_api import DistributionApi, RetentionApi
from torrentdist.master.policies.policy_loop import PolicyLoop, PolicyParts
from torrentdist.master.policies.retention_operations import RetentionOperations
from torrentdist.master.swarm.swarms import Swarms


def policies_room(core: MasterCore, leading: LeadingRoom, swarms: Swarms) -> Room:
    leadership, changes = leading.leadership, leading.changes
    distributions = DistributionOperations(changes, swarms.members, core.now)
    retention = RetentionOperations(changes, core.session.zookeeper.server_now)
    parts = PolicyParts(changes, retention, swarms.members, lambda: swarms.directory.revisions.states)
    loop = PolicyLoop(core.session, leadership, parts, core.config.distribution.patience_secs)
    plugin_without_limits = "" if core.host.keeps_limits else core.config.codedistributor.class_
    return Room(
        routers=[
            DistributionApi(distributions, leadership, core.records, swarms.members, plugin_without_limits),
            RetentionApi(retention, leadership, core.records),
        ],
        loops=[Loop("policies", loop.run, When.REGISTERED)],
    )
