"""The room of what a master says of the whole: health, the cluster, its saved records, a backup."""

from torrentdist.host.process.health_api import HealthApi
from torrentdist.host.process.room import Loop, Room
from torrentdist.master.leading.own_role import failing_checks
from torrentdist.master.master_core import MasterCore
from torrentdist.master.presence.attention_sight import AttentionSight
from torrentdist.master.reads.cluster_api import ClusterApi


def reads_room(core: MasterCore, sight: AttentionSight) -> Room:
    leadership = sight.leadership
    return Room(
        routers=[
            HealthApi(lambda: failing_checks(core), core.metrics),
            ClusterApi(core, sight),
        ],
        loops=[Loop("records", lambda: core.records.run(leadership.is_leader))],
    )
