"""Container images of this host, for its daemon."""

from collections.abc import Callable, Sequence

from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.host.process.room import Loop, Room
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.gateway.bundle_reader import BundleReader
from torrentdist.supervisor.gateway.cluster_bundles import ClusterBundles
from torrentdist.supervisor.images.blob_uploads import BlobUploads
from torrentdist.supervisor.images.checked_blobs import CheckedBlobs
from torrentdist.supervisor.images.image_store import ImageStore
from torrentdist.supervisor.images.publication import Publication
from torrentdist.supervisor.images.push_api import PushApi
from torrentdist.supervisor.images.pushers import Pushers
from torrentdist.supervisor.images.pushes import Pushes
from torrentdist.supervisor.images.registry_api import RegistryApi
from torrentdist.supervisor.images.staged_blobs import StagedBlobs


class ImageRoom(Room, frozen=True, kw_only=True):
    pushes: Pushes


def image_room(
    host: HostDaemon,
    reader: BundleReader,
    keeper: Keeper,
    masters: Callable[[], Sequence[str]],
    cluster: ClusterBundles,
) -> ImageRoom:
    """`masters` returns the URLs of the masters."""
    runtime, config = host.runtime, host.config
    in_the_clear = config.api.insecure_listen or config.client.token_in_the_clear
    pushers = Pushers(host.guard, masters, in_the_clear=in_the_clear)
    staged = StagedBlobs(runtime.store.data_dir / "pushes")
    checked = CheckedBlobs()
    images = ImageStore(runtime, reader, staged, host.links, checked)
    uploads = BlobUploads(staged, runtime.store)
    pushes = Pushes(pushers, images, checked, uploads, Publication(runtime, keeper, staged), keeper)
    pushes.on_change = cluster.forget
    return ImageRoom(
        routers=(RegistryApi(runtime.store, images, checked, pushers, cluster), PushApi(pushes)),
        loops=(Loop("pushes", pushes.run),),
        pushes=pushes,
    )
