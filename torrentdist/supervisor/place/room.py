"""This host's place in the cluster, for its daemon."""

from torrentdist import __version__
from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.host.process.room import Loop, Room
from torrentdist.model.ids import SupervisorId
from torrentdist.model.records import SCHEMA, SupervisorRecord
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.gateway.doors import gateway_url, outside_url
from torrentdist.supervisor.jobs.assignment_loop import AssignmentLoop
from torrentdist.supervisor.place.cluster_place import ClusterPlace
from torrentdist.supervisor.place.znode_watch import ZnodeWatch


class PlaceRoom(Room, frozen=True, kw_only=True):
    place: ClusterPlace


def place_room(
    host: HostDaemon, watch: ZnodeWatch, keeper: Keeper, assigning: AssignmentLoop, started_at: float
) -> PlaceRoom:
    settings = host.config.supervisor
    record = SupervisorRecord(
        id=SupervisorId(host.identity.id),
        host=host.identity.address,
        gateway=gateway_url(host),
        swarm_port=host.swarm_port,
        store=host.runtime.store.id,
        version=__version__,
        slots=settings.slots,
        labels=settings.labels,
        started_at=started_at,
        speaks=SCHEMA,
        url=outside_url(host),
        certificate=host.guard.certificate(),
    )
    place = ClusterPlace(host, watch, keeper, assigning)
    return PlaceRoom(place=place, loops=(Loop("zookeeper", lambda: place.join(record), ends_daemon=True),))
