"""The values that the directory of swarms takes and gives, and how often peers are asked to come.

Always: they are immutable.
Pure: no I/O and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmEntry


@dataclass(frozen=True, kw_only=True)
class Periods:
    """How often peers are asked to come, in seconds."""

    fetching_secs: float = 1.0
    unsettled_secs: float = 0.25
    """For a receiver that came by itself a moment ago: others come with it, and its place
    changes."""
    seeding_secs: float = 15.0
    stock_secs: float = 300.0
    """libtorrent's own clients come no more often, whatever a tracker answers
    (`min_announce_interval`)."""
    few: int = 16
    """Up to this many fetching peers come that often. More come less often, by the root of their
    number."""
    fetching_per_sec: float = 500.0
    """Fetching peers that may come in a second. They are spread further, so that a wave can't drown
    a master."""
    grace_secs: float = 1.0
    """How much later than asked a peer may come."""
    rotate_secs: float = 60.0
    """How long a peer is handed the same others, as long as they stay."""

    def fetching(self, peers: int) -> float:
        """When each of `peers` fetching peers is to come again."""
        return max(self.fetching_secs * max(1.0, math.sqrt(peers / self.few)), peers / self.fetching_per_sec)


class SwarmFacts(NamedTuple):
    """What a master knows about a digest from its records, for the answer."""

    removed: bool = False
    pinned: bool = False
    replicas: int = 0
    expected: tuple[PeerId, ...] = ()
    """Peers that are to have it, whether they have asked for it or not."""


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


class SwarmCounts(NamedTuple):
    complete: int
    incomplete: int


@dataclass(frozen=True, kw_only=True)
class DirectoryStatistics:
    """Counts for metrics. The last three count since this process began."""

    peers: Mapping[PeerRole, int]
    fetching: int
    swarms: int
    memberships: int
    hosts: int
    announces: int
    refused: int
    expired: int
