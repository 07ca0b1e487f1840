"""The directory of ids of this host, for its daemon."""

from pathlib import Path

from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.host.process.room import Loop, Room
from torrentdist.log import get_logger
from torrentdist.model.configuration.config import Config, SupervisorConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.gateway.doors import gateway_url
from torrentdist.supervisor.ids.bundle_links import BundleLinks
from torrentdist.supervisor.ids.ids_directory import IdsDirectory
from torrentdist.supervisor.ids.lease_api import LeaseApi
from torrentdist.supervisor.ids.leases import Leases

log = get_logger()


def ids_room(host: HostDaemon, keeper: Keeper) -> Room:
    """Builds the room. It is empty where this host has no directory of ids."""
    directory = open_directory(host.config)
    if directory is None:
        return Room()
    host.close_later(directory.close)
    directory.equip(gateway_url(host))
    leases = Leases(directory.leases)
    links = BundleLinks(directory, leases, host.runtime, keeper)
    keeper.is_leased, keeper.is_content_leased = leases.is_held, leases.is_content_held
    keeper.leased_digests, keeper.after_round = leases.digests, links.poke
    api = LeaseApi(host.runtime, keeper, directory, leases, links)
    return Room(routers=(api,), loops=(Loop("ids", links.run),))


def open_directory(config: Config) -> IdsDirectory | None:
    """Opens the directory of the configuration. The default one is left out where it cannot be
    made, which needs root or an administrator."""
    wanted = config.supervisor.ids_dir
    if not wanted:
        return None
    try:
        return IdsDirectory.open(Path(wanted), config.store.readable_by)
    except TorrentdistError as error:
        if wanted != SupervisorConfig().ids_dir:
            raise
        log.warning(
            "this host has no directory of bundles by their ids, which spark-submit --env needs; "
            "an administrator can make it, or supervisor.ids_dir can name another one",
            ids_dir=wanted,
            detail=error.message,
        )
        return None
