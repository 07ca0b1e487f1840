"""The room of presence: the cluster remembers its daemons, and says what needs attention."""

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.host.process.room import Loop, Room, When
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.leading.room import LeadingRoom
from torrentdist.master.master_core import MasterCore
from torrentdist.master.presence.attention_sight import AttentionSight
from torrentdist.master.presence.presence_api import PresenceApi
from torrentdist.master.presence.presence_loop import PresenceLoop
from torrentdist.master.presence.presence_plan import Heard
from torrentdist.master.swarm.swarms import Swarms


class PresenceRoom(Room, frozen=True, kw_only=True):
    sight: AttentionSight


def presence_room(core: MasterCore, leading: LeadingRoom, heartbeats: Heartbeats, swarms: Swarms) -> PresenceRoom:
    leadership = leading.leadership
    sight = AttentionSight(core.records, leadership, heartbeats, swarms, core.host.http)

    def hear(snapshot: ClusterSnapshot, now: float) -> Heard:
        return Heard(swarms.said_goodbye, heartbeats.unheard(snapshot, now))

    loop = PresenceLoop(core.session, leadership, hear, core.config.master.forget_after_secs)
    return PresenceRoom(
        sight=sight,
        routers=[PresenceApi(sight, leading.changes, leadership)],
        loops=[Loop("presence", loop.run, When.REGISTERED)],
    )
