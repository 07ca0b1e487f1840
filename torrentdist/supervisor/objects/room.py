"""Bundles as S3's objects, for this host's daemon."""

from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.host.process.room import Room
from torrentdist.supervisor.gateway.bundle_reader import BundleReader
from torrentdist.supervisor.gateway.cluster_bundles import ClusterBundles
from torrentdist.supervisor.objects.object_api import ObjectApi


def object_room(host: HostDaemon, reader: BundleReader, cluster: ClusterBundles) -> Room:
    return Room(routers=(ObjectApi(host.runtime, reader, cluster),))
