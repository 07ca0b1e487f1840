"""The bundles of this host, for its daemon."""

from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.host.process.room import Loop, Room
from torrentdist.supervisor.bundles.bundle_signatures import BundleSignatures
from torrentdist.supervisor.bundles.high_mark import keep_below_mark
from torrentdist.supervisor.bundles.hold_api import HoldApi
from torrentdist.supervisor.bundles.host_bundle_api import HostBundleApi, HostStateApi
from torrentdist.supervisor.bundles.keeper import Keeper


class BundleRoom(Room, frozen=True, kw_only=True):
    keeper: Keeper
    signatures: BundleSignatures


def bundle_room(host: HostDaemon) -> BundleRoom:
    runtime, config = host.runtime, host.config
    signatures = BundleSignatures(config.trust, runtime.store.data_dir / "signatures", host.links.signatures)
    keeper = Keeper(host, signatures, config.supervisor.seed_secs)
    state = HostStateApi(runtime)
    return BundleRoom(
        routers=(HostBundleApi(runtime, keeper), HoldApi(runtime, keeper), state),
        outside=(state,),
        loops=(Loop("keeper", keeper.run), Loop("high mark", lambda: keep_below_mark(runtime, host.marks))),
        keeper=keeper,
        signatures=signatures,
    )
