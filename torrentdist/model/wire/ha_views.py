"""What users see of the masters' high availability: the JSON of `torrentdist ha` and of its part of
the HTTP API.

These keys are promised in docs/protocol.md. A key may be added; none changes its meaning.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from torrentdist.model.ids import MasterId
from torrentdist.model.wire.view import View


class MasterState(StrEnum):
    LEADER = "leader"
    STANDBY = "standby"
    ELECTED = "elected"
    """First in the queue, and not known to be ready: acts on nothing."""
    PAUSED = "paused"
    """Gave way, and queues again soon."""
    OUT = "out"
    """Not in the queue: starting, stopping, or without ZooKeeper."""
    UNREACHABLE = "unreachable"
    """Registered, and it doesn't answer the master that was asked."""


class RoleView(View, frozen=True, kw_only=True):
    """`ha roles`: one master, in its own words."""

    id: MasterId
    url: str
    state: MasterState
    epoch: int | None = None
    """The highest that it knows."""
    lag: int | None = None
    """Available bundles that it has no copy of yet."""
    version: str
    ready: bool = False
    failing: dict[str, str] = msgspec.field(default_factory=dict)
    now: float = 0.0
    """Its wall clock when it answered: people compare clocks by it, and nothing is decided by it.
    """
    session_secs: float | None = None
    """Session timeout that its configuration asks for, in seconds."""
    granted_secs: float | None = None
    """Session timeout that ZooKeeper granted, in seconds. None without a session."""


class DialView(View, frozen=True, kw_only=True):
    """GET /v1/dial: whether the master that was asked can connect back to a port of who asks."""

    host: str
    port: int
    reachable: bool
    detail: str = ""


class SightView(View, frozen=True, kw_only=True):
    """GET /v1/sight: what a master that sees no ZooKeeper either can prove to a supervisor."""

    sees: bool
    """ZooKeeper has answered a question in time."""
    newest: int | None
    """The generation of the supervisor's newest assignment; None: there may be one that this master
    doesn't know."""
    masters: dict[MasterId, str] = msgspec.field(default_factory=dict)
    """The URLs of all that were registered when this master last saw ZooKeeper."""


class LeaderView(View, frozen=True, kw_only=True):
    """`ha leader`"""

    leader: MasterId
    epoch: int
    since: float
    stale_secs: float | None = None
    """Seconds since the answering master lost ZooKeeper; this was the leader then. None if it leads
    now."""


class TransferBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/transfer"""

    master: str
    """The master that is to lead."""


class FailoverView(View, frozen=True, kw_only=True):
    """`ha failovers`"""

    previous: MasterId | None
    current: MasterId
    at: float
    reason: str


class LeaderTransferView(View, frozen=True, kw_only=True):
    """`ha transfer`"""

    previous: MasterId
    leader: MasterId
    seconds: float


class BackupView(View, frozen=True, kw_only=True):
    """`ha backup`"""

    path: str
    cluster: str
    epoch: int
    records: int
    size: int


class FoundedView(View, frozen=True, kw_only=True):
    """The result of `ha init`."""

    cluster: str
    founded: bool
    """False: it was there already."""


class RestoreView(View, frozen=True, kw_only=True):
    """`ha restore`"""

    cluster: str
    epoch: int
    """Above every epoch of before."""
    records: int
    seconds: float
