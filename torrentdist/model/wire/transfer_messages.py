"""The running transfers of a host, and the results of `upload` and `download`."""

from enum import StrEnum
from typing import Self

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
    outside: int = 0
    """Bytes among these that came from other zones."""

    def with_brought(self, brought: Self) -> Self:
        """Returns these figures with what came beside the swarm, which count as local here, where
        it came from."""
        local = self.local - brought.masters - brought.peers - brought.plugin
        if local < 0:
            return self
        masters, peers = self.masters + brought.masters, self.peers + brought.peers
        plugin = self.plugin + brought.plugin
        return type(self)(masters=masters, peers=peers, local=local, plugin=plugin, outside=self.outside)


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


class ArrivalView(View, frozen=True, kw_only=True):
    """How much of a bundle has come to one place, and from where."""

    done: int = 0
    size: int = 0
    rate: float = 0.0
    """Bytes received per second."""
    from_peers: int = 0
    from_masters: int = 0
    from_plugin: int = 0
    local: int = 0
    """Bytes that were there before."""
    outside: int = 0
    """Bytes that came from other zones."""


class ContentView(View, frozen=True, kw_only=True):
    """The content that an upload or a download is about."""

    id: BundleId
    digest: Digest
    size: int
    files: int


class UploadView(ContentView, frozen=True, kw_only=True):
    """The result of `upload`."""

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
    owner_only: int = 0
    """Number of files that only their owner can read where they were uploaded from."""


class UploadPreview(ContentView, frozen=True, kw_only=True):
    """The result of `upload --dry-run`: what an upload would move."""

    new_bytes: int
    reused_bytes: int
    reused_from: list[BundleId]
    compressed: list[str] = []
    owner_only: int = 0


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


class DownloadPreview(ContentView, frozen=True, kw_only=True):
    """The result of `download --dry-run`."""

    path: str
    source: ContentSource


class DownloadView(ContentView, frozen=True, kw_only=True):
    """The result of `download`."""

    path: str
    seconds: float
    sources: Sources
    signers: list[str] = []
    """The ids of the keys of [trust] that have signed it. Empty where the mode is off."""
    warning: str = ""
    """What is wrong with its signatures, where the mode is warn."""
