"""Election as pure decisions: who is first, whom to wait for, how long a lease lasts, who led before.

Always holds: the lowest sequence number is first, and only a znode of this very session stands for us.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from torrentdist.cluster import paths
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId
from torrentdist.model.records import Record, decode

KEEPALIVE_SHARE = 1 / 3
"""A leader writes once per this share of the session's timeout."""

LEASE_SHARE = 2 / 3
"""How much of the negotiated timeout a write is good for. Not all of it: a ZooKeeper follower hands a write on without
touching the session at ZooKeeper's leader, which may have heard of the session last one keep-alive earlier."""

HISTORY = 100
"""How many failovers are kept."""


class ElectionPhase(StrEnum):
    OUT = "out"
    """Not in the queue, and not meant to be."""
    QUEUED = "queued"
    """Has its place, watches its predecessor only, and fetches whatever it lacks."""
    ELECTED = "elected"
    """First in the queue, but not known to be ready: acts on nothing."""
    LEADING = "leading"
    """Has raised the epoch, and acts as long as its lease lasts."""
    PAUSED = "paused"
    """Gave way, or could not queue; queues again soon."""


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
        ElectionPhase.PAUSED: "gives way to who lacks nothing",
        ElectionPhase.OUT: "stops, or hands over",
    },
    ElectionPhase.PAUSED: {ElectionPhase.QUEUED: "after a while", ElectionPhase.OUT: "leaves the queue"},
}
"""The only changes of phase that there are, and why. LEADING is reached from ELECTED alone."""


class TermRecord(Record, frozen=True, kw_only=True):
    """/epoch: who raised it, and by right of which election znode."""

    leader: MasterId
    election: str
    left: str = ""
    """Why the leader gave it back, if it did."""
    successor: str = ""
    """The election znode that it was left to, if to anybody's."""

    def leader_among(self, names: Collection[str]) -> MasterId | None:
        """The leader, while the znode that it leads by is in the queue."""
        return self.leader if not self.left and self.election in names else None


@dataclass(frozen=True)
class Term:
    """One leader's time in office."""

    epoch: int
    election: str
    """The path of its election znode."""
    session: int


@dataclass(frozen=True)
class OwnNode:
    name: str
    owner: int
    """The session that ZooKeeper says it belongs to."""


@dataclass(frozen=True)
class MustQueue:
    """Nothing in the queue stands for us."""


@dataclass(frozen=True)
class Ghost:
    """Our znode belongs to another session: it would go on standing for us after we are gone."""

    name: str


@dataclass(frozen=True)
class Waits:
    predecessor: str


@dataclass(frozen=True)
class First:
    name: str


Standing = MustQueue | Ghost | Waits | First


def queue(children: Iterable[str]) -> list[str]:
    """The names that ZooKeeper numbered, in order; whatever else somebody put there doesn't count."""
    numbered = [(number, name) for name in children if (number := paths.sequence_of(name)) is not None]
    return [name for _, name in sorted(numbered)]


def standing(children: Iterable[str], own: OwnNode | None, session: int | None) -> Standing:
    order = queue(children)
    if own is None or own.name not in order:
        return MustQueue()
    if session is None or own.owner != session:
        return Ghost(own.name)
    place = order.index(own.name)
    return First(own.name) if place == 0 else Waits(order[place - 1])


def left_to(record: TermRecord | None, own: str, children: Iterable[str]) -> str | None:
    """The place in the queue that the last leader left its office to, while it is there and isn't our own.

    Whoever is first steps behind it then. A place belongs to one session, and who stepped behind it stays there: the
    queue gets on whatever becomes of the successor, without a clock.
    """
    if record is None or not record.left or record.successor == own or record.successor not in queue(children):
        return None
    return record.successor


def lease_end(acknowledged: float | None, negotiated_timeout: float) -> float:
    """Until when a leader may act whose last acknowledged write was *sent* at that time."""
    return float("-inf") if acknowledged is None else acknowledged + LEASE_SHARE * negotiated_timeout


def read_term(data: bytes) -> TermRecord | None:
    """Who raised the epoch last; None if nobody has, or if it cannot be read: then a new leader just goes on."""
    try:
        return decode(data, TermRecord, path=paths.EPOCH) if data else None
    except TorrentdistError:
        return None


def failover_reason(previous: TermRecord | None, me: MasterId, registered: bool) -> str:
    """Why `previous` leads no more, as far as the tree tells. `registered`: its master is in /masters now."""
    if previous is None:
        return "first leader"
    if previous.left:
        return previous.left
    if previous.leader == me or registered:
        return "session lost"
    return "died"


def outdated(names: Iterable[str], keep: int = HISTORY) -> list[str]:
    """The failovers to forget, oldest first."""
    order = queue(names)
    return order[: max(0, len(order) - keep)]
