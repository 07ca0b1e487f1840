"""The gateway of this host, for its daemon: its ports, and bundles as files, archives and whatever
other libraries know.

A new door is a room of its own, and one of DOORS.
"""

from dataclasses import dataclass

from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.host.process.room import Room
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.gateway.archive_cache import ArchiveCache
from torrentdist.supervisor.gateway.bundle_reader import BundleReader
from torrentdist.supervisor.gateway.bundle_server import BundleServer
from torrentdist.supervisor.gateway.doors import Doors
from torrentdist.supervisor.hub.room import hub_room
from torrentdist.supervisor.place.znode_watch import ZnodeWatch
from torrentdist.supervisor.repositories.room import repository_room

DOORS = (hub_room, repository_room)


@dataclass(frozen=True, kw_only=True)
class GatewayRoom(Room):
    reader: BundleReader
    archives: ArchiveCache
    doors: Doors


def gateway_room(host: HostDaemon, watch: ZnodeWatch, keeper: Keeper) -> GatewayRoom:
    store, doors = host.runtime.store, Doors(host, watch)
    archives = ArchiveCache(store.data_dir / "archives", store.measure)
    host.close_later(archives.close)
    reader = BundleReader(host.runtime, keeper, host.config.supervisor.read_stall_secs)
    served = [router for door in DOORS for router in door(host, reader).routers]
    return GatewayRoom(
        routers=(BundleServer(host.runtime, keeper, reader, archives), *served),
        loops=tuple(doors.loops()),
        reader=reader,
        archives=archives,
        doors=doors,
    )
