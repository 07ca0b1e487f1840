"""What happens in a cluster, as values: one record a kind of event, written as one flat JSON object a line.

A key may be added to a record, and a kind to the list; none changes its meaning while SCHEMA_VERSION stays. What every
line carries besides is `Origin`'s and the log's: see docs/protocol.md. Must not do: carry a secret or a user's data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from torrentdist.model.wire.job_messages import WorkerState

SCHEMA_VERSION = 1


class Fact(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    pass


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon that a line comes from."""

    node: str
    role: str
    rack: str
    run: str
    """Another one for every start of the daemon: (node, run, seq) is one event, however often it is read."""


class DaemonStarted(Fact, frozen=True, kw_only=True, tag="daemon_started"):
    host: str
    port: int
    """Where peers reach its swarm."""
    version: str


class BundleUploaded(Fact, frozen=True, kw_only=True, tag="bundle_uploaded"):
    """As many masters as wanted hold it: told by the leader."""

    bundle: str
    digest: str
    size: int


class FileFact(msgspec.Struct, frozen=True, kw_only=True):
    root: str
    """The merkle root of its content: equal content, equal root, in whatever bundle."""
    size: int


class BundleFiles(Fact, frozen=True, kw_only=True, tag="bundle_files"):
    """What a new bundle is made of, some hundred files a line: told by the leader."""

    bundle: str
    digest: str
    files: list[FileFact]


class BundlePublished(Fact, frozen=True, kw_only=True, tag="bundle_published"):
    """Every byte is verified and in its place on this host."""

    bundle: str
    digest: str
    size: int


class DownloadStarted(Fact, frozen=True, kw_only=True, tag="download_started"):
    bundle: str
    digest: str
    size: int


class DownloadProgress(Fact, frozen=True, kw_only=True, tag="download_progress"):
    bundle: str
    digest: str
    size: int
    done: int
    rate: float
    peers: int
    from_masters: int
    from_peers: int
    local: int


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """What one peer sent, where it listens."""

    host: str
    port: int
    bytes: int


class DownloadEnd(Fact, frozen=True, kw_only=True):
    """How a download went, by this host's monotonic clock."""

    bundle: str
    digest: str
    size: int
    seconds: float
    prepare_secs: float
    """Until there was room and a place for it."""
    wait_secs: float
    """From then until the first byte came."""
    fetch_secs: float
    """From the first byte to the last, verified."""
    publish_secs: float
    """Until it was durable and visible."""
    from_masters: int
    from_peers: int
    local: int
    peers: int
    """Connected at once, at most."""
    hash_failures: int
    sources: list[Source]


class DownloadFinished(DownloadEnd, frozen=True, kw_only=True, tag="download_finished"):
    pass


class DownloadFailed(DownloadEnd, frozen=True, kw_only=True, tag="download_failed"):
    code: str
    reason: str


class ReadStalled(Fact, frozen=True, kw_only=True, tag="read_stalled"):
    """The gateway ended an answer, because nothing of the bundle came for so long."""

    bundle: str
    digest: str
    seconds: float
    reason: str


class HashFailed(Fact, frozen=True, kw_only=True, tag="hash_failed"):
    """A piece did not match its digest: it is dropped and fetched anew."""

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
    """Told by the one who leads now."""

    epoch: int
    previous: str
    """Empty: nobody led before."""
    reason: str
    vacant_secs: float | None
    """For how long this master saw nobody lead, by its own clock; none: it did not see the change."""


class LeaderLost(Fact, frozen=True, kw_only=True, tag="leader_lost"):
    epoch: int
    led_secs: float


class EventsDropped(Fact, frozen=True, kw_only=True, tag="events_dropped"):
    """So many came that this many were not written."""

    count: int


KINDS: tuple[type[Fact], ...] = (
    DaemonStarted,
    BundleUploaded,
    BundleFiles,
    BundlePublished,
    DownloadStarted,
    DownloadProgress,
    DownloadFinished,
    DownloadFailed,
    ReadStalled,
    HashFailed,
    PeerConnected,
    PeerDropped,
    WorkerChanged,
    LeaderElected,
    LeaderLost,
    EventsDropped,
)
NAMES: Mapping[str, type[Fact]] = {str(kind.__struct_config__.tag): kind for kind in KINDS}


def line_of(fact: Fact, writer: Writer, *, seq: int, at: float, clock: float | None) -> bytes:
    """One line of a file of events, its end included. `clock`: what to add to `at` to have ZooKeeper's time."""
    envelope: dict[str, Any] = {"v": SCHEMA_VERSION, **msgspec.structs.asdict(writer), "seq": seq, "at": at}
    return msgspec.json.encode({**envelope, "clock": clock, **msgspec.to_builtins(fact)}) + b"\n"
