"""The JSON of `torrentdist ha` and the matching part of the HTTP API: leader, roles, failovers and
backups.

docs/protocol.md promises these keys.
Always: a key may be added.
Never: change the meaning of a key.
"""

from enum import StrEnum

import msgspec

from torrentdist.model.ids import MasterId
from torrentdist.model.wire.view import View


class MasterState(StrEnum):
    LEADER = "leader"
    STANDBY = "standby"
    ELECTED = "elected"
    """First in the queue, but not known to be ready. Changes nothing."""
    PAUSED = "paused"
    """Gave way, and queues again soon."""
    OUT = "out"
    """Not in the queue: starting, stopping, or without ZooKeeper."""
    UNREACHABLE = "unreachable"
    """Registered, but it does not answer the master that was asked."""


class RoleView(View, frozen=True, kw_only=True):
    """What one master says about itself, for `ha roles`."""

    id: MasterId
    url: str
    state: MasterState
    epoch: int | None = None
    """The highest epoch that it knows."""
    lag: int | None = None
    """Number of available bundles that it has no copy of yet."""
    version: str
    ready: bool = False
    failing: dict[str, str] = msgspec.field(default_factory=dict)
    now: float = 0.0
    """Its wall-clock time when it answered. It lets people compare clocks; no decision depends on
    it."""
    session_secs: float | None = None
    """The session timeout that its configuration requests, in seconds."""
    granted_secs: float | None = None
    """The session timeout that ZooKeeper granted, in seconds; None without a session."""
    write_secs: float | None = None
    """How long ZooKeeper took for its last write, in seconds; None: it has written nothing."""


class DialView(View, frozen=True, kw_only=True):
    """The answer of GET /v1/dial: whether the master can connect to a port of the asking host."""

    host: str
    port: int
    reachable: bool
    detail: str = ""


class OutageView(View, frozen=True, kw_only=True):
    """The answer of GET /v1/sight, which supervisors ask during a ZooKeeper outage: what this
    master sees, and which assignment it knows."""

    sees: bool
    """Whether ZooKeeper answered this master in time."""
    newest: int | None
    """Generation of the supervisor's newest assignment. None: there may be a newer one that this
    master does not know."""
    masters: dict[MasterId, str] = msgspec.field(default_factory=dict)
    """The URLs of all masters that were registered when this master last read them from
    ZooKeeper."""


class LeaderView(View, frozen=True, kw_only=True):
    """The answer of `ha leader`."""

    leader: MasterId
    epoch: int
    since: float
    stale_secs: float | None = None
    """Seconds since the answering master lost ZooKeeper, if `leader` was the leader at that time.
    None if it leads now."""


class TransferBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/transfer."""

    master: str
    """The master that should lead."""


class FailoverView(View, frozen=True, kw_only=True):
    """An entry of `ha failovers`."""

    previous: MasterId | None
    current: MasterId
    at: float
    reason: str


class LeaderTransferView(View, frozen=True, kw_only=True):
    """The result of `ha transfer`."""

    previous: MasterId
    leader: MasterId
    seconds: float


class BackupView(View, frozen=True, kw_only=True):
    """The result of `ha backup`."""

    path: str
    cluster: str
    epoch: int
    records: int
    size: int


class FoundedView(View, frozen=True, kw_only=True):
    """The result of `ha init`."""

    cluster: str
    founded: bool
    """False if the cluster existed already."""


class RestoreView(View, frozen=True, kw_only=True):
    """The result of `ha restore`."""

    cluster: str
    epoch: int
    """Greater than every epoch before the restore."""
    records: int
    seconds: float
