"""The swarm's room of a master: the directory of swarms, announces, and certificates of members."""

from torrentdist.host.process.room import Loop, Room
from torrentdist.master.access.host_bundles import HostBundles
from torrentdist.master.master_core import MasterCore
from torrentdist.master.swarm.newer_records import NewerRecords
from torrentdist.master.swarm.swarm_api import SwarmApi
from torrentdist.master.swarm.swarm_certificate_api import SwarmCertificateApi
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.security.authority.swarm_issuing import SwarmIssuing


class SwarmRoom(Room, frozen=True, kw_only=True):
    swarms: Swarms
    host_bundles: HostBundles


def swarm_room(core: MasterCore) -> SwarmRoom:
    swarms = Swarms(core)
    allowed = HostBundles(core.records.snapshot, swarms.names)
    newer = NewerRecords(core.session.mirror, swarms.directory.lists)
    return SwarmRoom(
        swarms=swarms,
        host_bundles=allowed,
        routers=[
            SwarmApi(newer, swarms, allowed, core.records.secrets, core.config.swarm_is_closed),
            SwarmCertificateApi(SwarmIssuing(core.config), allowed, newer),
        ],
        loops=[Loop("directory", swarms.run)],
    )
