"""Decides an election: which master is first, which znode to wait for, and how long a lease lasts.

Always: the lowest sequence number is first, and only a znode of our current session counts as ours.
Pure: no I/O and no clock.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

import msgspec

from torrentdist.cluster import paths
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId
from torrentdist.model.records import Record, decode

KEEPALIVE_SHARE = 1 / 3
"""A leader writes once per this share of the session timeout."""

LEASE_SHARE = 2 / 3
"""The share of the session timeout for which a write proves the session. It is less than 1 because
a ZooKeeper follower forwards a write without renewing the session at its leader, which may last
have heard of the session one keep-alive earlier."""

HISTORY = 100
"""Number of failover records that are kept."""


class ElectionPhase(StrEnum):
    OUT = "out"
    """Not in the queue, and not trying to join it."""
    QUEUED = "queued"
    """In the queue: watches only its predecessor, and fetches the bundles that it lacks."""
    ELECTED = "elected"
    """First in the queue, but not known to be ready. Changes nothing."""
    LEADING = "leading"
    """Has raised the epoch, and acts while its lease lasts."""
    PAUSED = "paused"
    """Gave way or could not queue; queues again soon."""


NEXT: Mapping[ElectionPhase, Mapping[ElectionPhase, str]] = {
    ElectionPhase.OUT: {ElectionPhase.QUEUED: "registered, and has a place", ElectionPhase.PAUSED: "could not queue"},
    ElectionPhase.QUEUED: {
        ElectionPhase.ELECTED: "first in the queue",
        ElectionPhase.PAUSED: "its place is lost",
        ElectionPhase.OUT: "leaves the queue",
    },
    ElectionPhase.ELECTED: {
        ElectionPhase.LEADING: "ready, and the epoch is raised",
        ElectionPhase.QUEUED: "not first any more",
        ElectionPhase.PAUSED: "lacks a live job's bundle",
        ElectionPhase.OUT: "leaves the queue",
    },
    ElectionPhase.LEADING: {
        ElectionPhase.QUEUED: "lease, session or znode lost",
        ElectionPhase.PAUSED: "gives way to a master that lacks nothing",
        ElectionPhase.OUT: "stops, or hands over",
    },
    ElectionPhase.PAUSED: {ElectionPhase.QUEUED: "after a while", ElectionPhase.OUT: "leaves the queue"},
}
"""The allowed changes of phase, each with its reason. LEADING is reached only from ELECTED."""


class TermRecord(Record, frozen=True, kw_only=True):
    """The content of /epoch: the master that raised it, and its election znode."""

    leader: MasterId
    election: str
    left: str = ""
    """Why the leader gave up its term; empty while it has not."""
    successor: str = ""
    """The election znode that the leader handed over to; empty if it named none."""

    def leader_among(self, names: Collection[str]) -> MasterId | None:
        """Returns the leader if its election znode is among `names`, else None."""
        return self.leader if not self.left and self.election in names else None


class Term(msgspec.Struct, frozen=True):
    epoch: int
    election: str
    """Path of the leader's election znode."""
    session: int


class OwnNode(msgspec.Struct, frozen=True):
    name: str
    owner: int
    """The session that owns the znode, according to ZooKeeper."""


class MustQueue(msgspec.Struct, frozen=True):
    """We have no znode in the queue."""


class Ghost(msgspec.Struct, frozen=True):
    """Our znode belongs to an older session and would outlive us in the queue."""

    name: str


class Waits(msgspec.Struct, frozen=True):
    predecessor: str


class First(msgspec.Struct, frozen=True):
    name: str


Standing = MustQueue | Ghost | Waits | First


def queue(children: Iterable[str]) -> list[str]:
    """Returns the names that ZooKeeper numbered, in order. Ignores other znodes."""
    numbered = [(number, name) for name in children if (number := paths.sequence_of(name)) is not None]
    return [name for _, name in sorted(numbered)]


def standing(children: Iterable[str], own: OwnNode | None, session: int | None) -> Standing:
    order = queue(children)
    if own is None or own.name not in order:
        return MustQueue()
    if own.owner != session:
        return Ghost(own.name)
    place = order.index(own.name)
    return First(own.name) if place == 0 else Waits(order[place - 1])


def left_to(record: TermRecord | None, own: str, children: Iterable[str]) -> str | None:
    """Returns the znode that the last leader handed over to, if it is in the queue and not our own.

    The first master in the queue then moves behind it. Places belong to sessions, so the queue
    continues whatever happens to the successor.
    """
    if record is None or not record.left or record.successor == own or record.successor not in queue(children):
        return None
    return record.successor


def lease_end(acknowledged: float | None, negotiated_timeout: float) -> float:
    """Returns until when a leader may act, given when its last acknowledged write was *sent*."""
    return float("-inf") if acknowledged is None else acknowledged + LEASE_SHARE * negotiated_timeout


def read_term(data: bytes) -> TermRecord | None:
    """Reads /epoch. Returns None if no master has raised it yet or if it cannot be read; neither
    stops a new leader."""
    try:
        return decode(data, TermRecord, path=paths.EPOCH) if data else None
    except TorrentdistError:
        return None


def failover_reason(previous: TermRecord | None, now: TermRecord, registered: bool) -> str:
    """Explains why `previous` no longer leads, as far as the tree shows. `registered` tells whether
    its master is in /masters."""
    if previous is None:
        return "first leader"
    if previous.left:
        return previous.left
    if previous.election == now.election:
        return "lease ended"
    if previous.leader == now.leader or registered:
        return "session lost"
    return "died"


def outdated(names: Iterable[str], keep: int = HISTORY) -> list[str]:
    """Returns the failover records to delete, oldest first."""
    order = queue(names)
    return order[: max(0, len(order) - keep)]
