"""The hub of this host, for its daemon."""

from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.host.process.room import Room
from torrentdist.supervisor.gateway.bundle_reader import BundleReader
from torrentdist.supervisor.hub.hub_api import HubApi


def hub_room(host: HostDaemon, reader: BundleReader) -> Room:
    return Room(routers=(HubApi(host.runtime, reader),))
