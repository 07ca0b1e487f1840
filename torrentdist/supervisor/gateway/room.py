"""The gateway of this host, for its daemon: its ports, and bundles as files, archives and whatever
other libraries know.

A new door is a room of its own, which is named here.
"""

from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.host.process.room import Room
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.gateway.archive_cache import ArchiveCache
from torrentdist.supervisor.gateway.bundle_reader import BundleReader
from torrentdist.supervisor.gateway.bundle_server import BundleServer
from torrentdist.supervisor.gateway.cluster_bundles import ClusterBundles
from torrentdist.supervisor.gateway.doors import Doors
from torrentdist.supervisor.hub.room import hub_room
from torrentdist.supervisor.images.pushes import Pushes
from torrentdist.supervisor.images.room import image_room
from torrentdist.supervisor.objects.room import object_room
from torrentdist.supervisor.place.znode_watch import ZnodeWatch
from torrentdist.supervisor.repositories.room import repository_room

DOORS = (hub_room, repository_room)
"""The doors that need nothing but the reader."""


class GatewayRoom(Room, frozen=True, kw_only=True):
    reader: BundleReader
    archives: ArchiveCache
    pushes: Pushes
    doors: Doors


def gateway_room(host: HostDaemon, watch: ZnodeWatch, keeper: Keeper) -> GatewayRoom:
    store, doors = host.runtime.store, Doors(host, watch)
    archives = ArchiveCache(store.data_dir / "archives", store.measure)
    host.close_later(archives.close)
    reader = BundleReader(host.runtime, keeper, host.config.supervisor.read_stall_secs)
    everything = ClusterBundles(host.links.bundles, store)
    images = image_room(host, reader, keeper, watch.master_urls, everything)
    rooms = [*(door(host, reader) for door in DOORS), object_room(host, reader, everything), images]
    served = [router for room in rooms for router in room.routers]
    return GatewayRoom(
        routers=(BundleServer(host.runtime, keeper, reader, archives), *served),
        loops=(*doors.loops(), *images.loops),
        reader=reader,
        archives=archives,
        pushes=images.pushes,
        doors=doors,
    )
