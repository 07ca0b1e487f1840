"""The values that the directory of swarms takes and returns, and the intervals at which peers
announce.

Always: they are immutable, but HostConditions, which memberships.py alone changes.
Pure: no I/O and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmEntry
from torrentdist.swarm.plan.expected_hosts import Expected


class Periods(msgspec.Struct, frozen=True, kw_only=True):
    """The intervals at which peers are told to announce, in seconds."""

    fetching_secs: float = 1.0
    unsettled_secs: float = 0.25
    """For a receiver that has just arrived unexpectedly: others arrive with it, and its place
    changes."""
    seeding_secs: float = 15.0
    stock_secs: float = 300.0
    """libtorrent's own clients announce no more often, whatever a tracker answers
    (`min_announce_interval`)."""
    few: int = 16
    """Up to this many fetching peers announce every `fetching_secs`. With more, the interval grows
    with the square root of their number."""
    fetching_per_sec: float = 500.0
    """Most announces of fetching peers per second. Their interval grows beyond that, so that a wave
    of arrivals cannot overload a master."""
    grace_secs: float = 1.0
    """How much later than told a peer may announce."""
    rotate_secs: float = 60.0
    """How long a peer is handed the same other peers, if these stay."""

    def fetching(self, peers: int) -> float:
        """Returns the interval at which each of `peers` fetching peers announces."""
        return max(self.fetching_secs * max(1.0, math.sqrt(peers / self.few)), peers / self.fetching_per_sec)


class SwarmFacts(NamedTuple):
    """What a master's records say about a digest, for the answer."""

    removed: bool = False
    pinned: bool = False
    replicas: int = 0
    expected: Expected = ()
    """Peers that should get the bundle, whether or not they have announced."""
    limited: bool = False
    """Whether receivers fetch it with a rate limit."""
    unknown: bool = False
    """Whether no record has it."""


def no_facts(_: Digest) -> SwarmFacts:
    return SwarmFacts()


class SwarmMember(NamedTuple):
    """What one peer last said about one swarm."""

    peer: PeerId
    role: PeerRole
    host: str
    port: int
    entry: SwarmEntry
    heard_at: float


class HeldBundles(NamedTuple):
    """The complete bundles that a peer announces."""

    number: int
    size: int
    own: int
    """Bytes on its disk that no two of them share."""
    rate: float = 0.0
    """Bytes per second that it receives of others."""
    problem: str = ""
    """Why one of the others does not arrive; empty: all do."""

    @classmethod
    def among(cls, entries: Iterable[SwarmEntry]) -> HeldBundles:
        """Returns the complete bundles among these, and how the others arrive."""
        known = [*entries]
        held, others = [e for e in known if e.complete], [e for e in known if not e.complete]
        problem = next((entry.problem for entry in others if entry.problem), "")
        return cls(len(held), sum(e.size for e in held), sum(e.own for e in held), sum(e.rate for e in others), problem)


class HostConditions(msgspec.Struct, frozen=True):
    """What peers said last of their hosts, by peer."""

    full: dict[PeerId, str] = msgspec.field(default_factory=dict)
    """Peers whose store has no room, and why."""
    clocks: dict[PeerId, float] = msgspec.field(default_factory=dict)
    """Peers whose clock is wrong, and the seconds by which it is ahead."""
    free: dict[PeerId, int] = msgspec.field(default_factory=dict)
    """Bytes of bundles for which each peer has room."""
    fills_in: dict[PeerId, float] = msgspec.field(default_factory=dict)
    """Seconds until the room of those that fill is used up."""
    certificate_ends_at: dict[PeerId, float] = msgspec.field(default_factory=dict)


class SwarmCounts(NamedTuple):
    complete: int
    incomplete: int


class DirectoryStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts for metrics. The last three count since this process began."""

    peers: Mapping[PeerRole, int]
    fetching: int
    swarms: int
    memberships: int
    hosts: int
    announces: int
    refused: int
    expired: int
