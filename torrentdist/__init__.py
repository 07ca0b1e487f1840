"""torrentdist puts a Spark job bundle on every host of a cluster, and keeps it there.

    torrentdist.upload("./bundle", id="etl-42")     puts a directory into the cluster
    torrentdist.distribute("etl-42")                brings it to every host
    torrentdist.path("etl-42")                      its read-only directory on this host
    torrentdist.download("etl-42", "./copy")        a copy of it

Always: importing the package loads nothing but this file; the first call loads the rest.
Never: import a library in this file.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # as in typing, which would take longer to load than this file
if TYPE_CHECKING:
    from torrentdist.api.async_client import AsyncClient
    from torrentdist.api.blocking_client import Client, distribute, download, path, upload, wait
    from torrentdist.client.bundles.transfer_progress import TransferProgress, UploadProgress
    from torrentdist.model.errors import TorrentdistError
    from torrentdist.model.wire.bundle_messages import BundleView
    from torrentdist.model.wire.fleet_messages import DistributeView, FleetView
    from torrentdist.model.wire.transfer_messages import DownloadView, UploadView

_PLACES = {
    "torrentdist.api.async_client": ("AsyncClient",),
    "torrentdist.api.blocking_client": ("Client", "upload", "download", "path", "distribute", "wait"),
    "torrentdist.client.bundles.transfer_progress": ("TransferProgress", "UploadProgress"),
    "torrentdist.model.errors": ("TorrentdistError",),
    "torrentdist.model.wire.bundle_messages": ("BundleView",),
    "torrentdist.model.wire.fleet_messages": ("DistributeView", "FleetView"),
    "torrentdist.model.wire.transfer_messages": ("DownloadView", "UploadView"),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "AsyncClient",
    "BundleView",
    "Client",
    "DistributeView",
    "DownloadView",
    "FleetView",
    "TorrentdistError",
    "TransferProgress",
    "UploadProgress",
    "UploadView",
    "distribute",
    "download",
    "path",
    "upload",
    "wait",
]

RESERVED_NAMES = frozenset({"submit", "Cluster"})
"""Names reserved for later calls of the Python API. No module and no value of this package may use
them."""


def __getattr__(name: str) -> object:
    """Loads a name of the API when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
