"""The room of what a master says of the whole: health, the cluster, its saved records, a backup."""

from __future__ import annotations

from torrentdist.host.http.health_api import HealthApi
from torrentdist.host.process.room import Loop, Room
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.leading.own_role import failing_checks
from torrentdist.master.master_core import MasterCore
from torrentdist.master.reads.cluster_api import ClusterApi
from torrentdist.master.swarm.swarms import Swarms


def reads_room(core: MasterCore, leadership: Leadership, heartbeats: Heartbeats, swarms: Swarms) -> Room:
    return Room(
        routers=[
            HealthApi(lambda: failing_checks(core), core.metrics),
            ClusterApi(core, leadership, heartbeats, swarms),
        ],
        loops=[Loop("records", lambda: core.records.run(leadership.is_leader))],
    )
