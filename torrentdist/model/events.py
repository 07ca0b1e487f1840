"""The events of a cluster as values: one record per kind, written as one flat JSON object per line.

docs/events.md describes the fields that every line has in addition.
Always: while SCHEMA_VERSION stays the same, keys and kinds may be added, but never change their
meaning.
Never: contain a secret or a user's data.
Longer than most files: one list of all kinds.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from torrentdist.model.wire.job_messages import WorkerState

SCHEMA_VERSION = 1


class Fact(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    pass


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon that wrote a line."""

    node: str
    role: str
    rack: str
    run: str
    """A new id for every start of the daemon. (node, run, seq) identifies an event."""


class DaemonStarted(Fact, frozen=True, kw_only=True, tag="daemon_started"):
    host: str
    port: int
    """Port of its swarm."""
    version: str


class BundleFact(Fact, frozen=True, kw_only=True):
    """Something that happened to one bundle."""

    bundle: str
    digest: str
    size: int


class UploadOpened(BundleFact, frozen=True, kw_only=True, tag="upload_opened"):
    """A client opened an upload, or opened it again. The leader writes this."""

    traceparent: str = ""
    """The client's span, as in the W3C header of this name; empty: it names none."""


class BundleUploaded(BundleFact, frozen=True, kw_only=True, tag="bundle_uploaded"):
    """As many masters as wanted hold the bundle. The leader writes this."""

    seconds: float = 0.0
    """Seconds since the upload was opened, by ZooKeeper's clock."""


class FileFact(msgspec.Struct, frozen=True, kw_only=True):
    root: str
    """Merkle root of the content. Equal content has equal roots in every bundle."""
    size: int


class BundleFiles(Fact, frozen=True, kw_only=True, tag="bundle_files"):
    """Files of a new bundle, several hundred per line. The leader writes this."""

    bundle: str
    digest: str
    files: list[FileFact]


class BundlePublished(BundleFact, frozen=True, kw_only=True, tag="bundle_published"):
    """Every byte of the bundle is verified and in its place on this host."""


class DownloadStarted(BundleFact, frozen=True, kw_only=True, tag="download_started"):
    """This host begins to fetch the bundle."""


class DownloadProgress(BundleFact, frozen=True, kw_only=True, tag="download_progress"):
    done: int
    rate: float
    peers: int
    from_masters: int
    from_peers: int
    local: int


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that one peer sent, by its listening address."""

    host: str
    port: int
    bytes: int


class DownloadEnd(BundleFact, frozen=True, kw_only=True):
    """The end of a download, with durations by this host's monotonic clock."""

    seconds: float
    prepare_secs: float
    """Seconds until room and a directory were reserved."""
    wait_secs: float
    """Seconds from then until the first byte."""
    fetch_secs: float
    """Seconds from the first byte to the last, verified."""
    publish_secs: float
    """Seconds until it was durable and visible."""
    from_masters: int
    from_peers: int
    local: int
    peers: int
    """Largest number of peers connected at once."""
    hash_failures: int
    sources: list[Source]
    outside: int = 0
    """Bytes that came from other zones."""


class DownloadFinished(DownloadEnd, frozen=True, kw_only=True, tag="download_finished"):
    pass


class DownloadFailed(DownloadEnd, frozen=True, kw_only=True, tag="download_failed"):
    code: str
    reason: str


class LackingHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host without the bundle at the end of a distribution."""

    host: str
    state: str
    """As `bundle distribute` shows it."""
    reason: str


class DistributionEnded(BundleFact, frozen=True, kw_only=True, tag="distribution_ended"):
    """All hosts have the bundle, or nothing changes any more. The leader writes this."""

    distribution: str
    """Its id, the same in every line about it. A leader that dies at that moment may have written a
    line that the next leader does not know of."""
    began_at: float
    """ZooKeeper's time."""
    ended_at: float
    hosts: int
    """Hosts that were told to fetch it, but for those in `left`."""
    done: int
    """Number of these hosts that have it."""
    left: int
    """Hosts that were told to stop before they had it."""
    cancelled: bool
    secs_50: float | None
    """Seconds until half of the hosts had it. None: that never happened."""
    secs_90: float | None
    secs_100: float | None
    from_masters: int
    from_peers: int
    from_plugin: int
    local: int
    failures: list[LackingHost]
    """The hosts that lack it, with their reasons; of many, 20."""
    outside: int = 0
    """Bytes that hosts fetched from other zones."""


class ReadStalled(Fact, frozen=True, kw_only=True, tag="read_stalled"):
    """The gateway ended an answer because no data of the bundle arrived for too long."""

    bundle: str
    digest: str
    seconds: float
    reason: str


class HashFailed(Fact, frozen=True, kw_only=True, tag="hash_failed"):
    """A piece did not match its digest. It is dropped and fetched again."""

    digest: str
    piece: int


class PeerConnected(Fact, frozen=True, kw_only=True, tag="peer_connected"):
    digest: str
    host: str
    port: int


class PeerDropped(Fact, frozen=True, kw_only=True, tag="peer_dropped"):
    digest: str
    host: str
    port: int
    reason: str


class WorkerChanged(Fact, frozen=True, kw_only=True, tag="worker_changed"):
    job: str
    worker: int
    state: WorkerState
    before: WorkerState | None
    pid: int
    exit_code: int | None
    restarts: int
    fencing: int
    detail: str


class LeaderElected(Fact, frozen=True, kw_only=True, tag="leader_elected"):
    """A new leader, which writes this."""

    epoch: int
    previous: str
    """The previous leader; empty if there was none."""
    reason: str
    vacant_secs: float | None
    """Seconds without a leader, by this master's clock. None if it did not see the change."""


class LeaderLost(Fact, frozen=True, kw_only=True, tag="leader_lost"):
    epoch: int
    led_secs: float


class AccessAudited(Fact, frozen=True, kw_only=True, tag="access_audited"):
    """Somebody changed something, or was refused. Written by the daemon that was asked."""

    who: str
    sender_role: str
    how: str
    """The proof of the name."""
    operation: str
    target: str
    bundle: str
    source: str
    """The sender's address."""
    result: str
    """`ok`, or the code of the error."""
    count: int = 1
    """How often. More than 1 for refusals only, which are counted by source."""


class EventsDropped(Fact, frozen=True, kw_only=True, tag="events_dropped"):
    """Number of events that were not written because there were too many."""

    count: int


KINDS: tuple[type[Fact], ...] = (
    DaemonStarted,
    UploadOpened,
    BundleUploaded,
    BundleFiles,
    BundlePublished,
    DownloadStarted,
    DownloadProgress,
    DownloadFinished,
    DownloadFailed,
    DistributionEnded,
    ReadStalled,
    HashFailed,
    PeerConnected,
    PeerDropped,
    WorkerChanged,
    LeaderElected,
    LeaderLost,
    AccessAudited,
    EventsDropped,
)
NAMES: Mapping[str, type[Fact]] = {str(kind.__struct_config__.tag): kind for kind in KINDS}


def line_of(fact: Fact, writer: Writer, *, seq: int, at: float, clock: float | None) -> bytes:
    """Returns one line of an event file, with its line end. `clock` plus `at` is ZooKeeper's
    time."""
    envelope: dict[str, Any] = {"v": SCHEMA_VERSION, **msgspec.structs.asdict(writer), "seq": seq, "at": at}
    return msgspec.json.encode({**envelope, "clock": clock, **msgspec.to_builtins(fact)}) + b"\n"
