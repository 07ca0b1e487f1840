"""The running transfers of a host, and the results of `upload` and `download`."""

from enum import StrEnum

from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.view import View


class Sources(View, frozen=True, kw_only=True):
    """Bytes by source."""

    masters: int = 0
    peers: int = 0
    local: int = 0
    """Bytes that were on this host already."""
    plugin: int = 0
    """Bytes that a plug-in fetched by other means than a swarm."""


class TransferPhase(StrEnum):
    CHECKING = "checking"
    FETCHING = "fetching"
    SEEDING = "seeding"
    FAILED = "failed"


class TransferView(View, frozen=True, kw_only=True):
    """An immutable snapshot of one transfer in the engine."""

    digest: Digest
    phase: TransferPhase
    size: int
    done: int
    """Verified bytes on disk."""
    rate: float = 0.0
    """Payload bytes received per second."""
    upload_rate: float = 0.0
    """Payload bytes sent per second."""
    eta: float | None = None
    """Estimated seconds until the transfer is complete."""
    uploaded: int = 0
    sources: Sources = Sources()
    peers: int = 0
    hash_failures: int = 0
    error: str = ""


class UploadView(View, frozen=True, kw_only=True):
    """The result of `upload`."""

    id: BundleId
    digest: Digest
    size: int
    files: int
    replicas: int
    min_replicas: int
    achieved: bool
    """Whether at least `min_replicas` masters hold the bundle."""
    seconds: float
    new_bytes: int | None
    """Bytes of the files that a master did not have in any bundle when the upload began. None: no
    master told it in time, and the upload did not wait."""
    reused_bytes: int | None
    reused_from: list[BundleId]
    """The bundles in which the masters had the rest, the one with the most bytes first."""
    compressed: list[str] = []
    """The compressed archives in the bundle. No later version can reuse any of them."""


class UploadPreview(View, frozen=True, kw_only=True):
    """The result of `upload --dry-run`: what an upload would move."""

    id: BundleId
    digest: Digest
    size: int
    files: int
    new_bytes: int
    reused_bytes: int
    reused_from: list[BundleId]
    compressed: list[str] = []


class ContentSource(StrEnum):
    """Where the content of a download would come from."""

    DEST = "dest"
    """It is at DEST already."""
    HOST = "host"
    """This host's supervisor has it."""
    SUPERVISOR = "supervisor"
    """This host's supervisor would fetch it."""
    PEER = "peer"
    """The command would fetch it from the swarm itself."""


class DownloadPreview(View, frozen=True, kw_only=True):
    """The result of `download --dry-run`."""

    id: BundleId
    digest: Digest
    path: str
    size: int
    files: int
    source: ContentSource


class DownloadView(View, frozen=True, kw_only=True):
    """The result of `download`."""

    id: BundleId
    digest: Digest
    path: str
    size: int
    files: int
    seconds: float
    sources: Sources
    signers: list[str] = []
    """The ids of the keys of [trust] that have signed it. Empty where the mode is off."""
    warning: str = ""
    """What is wrong with its signatures, where the mode is warn."""
