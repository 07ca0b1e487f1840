"""The values that the directory of swarms takes and gives.

Always: they are immutable. Never: a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmEntry


class SwarmFacts(NamedTuple):
    """What a master knows about a digest from elsewhere, for the answer."""

    removed: bool = False
    pinned: bool = False
    replicas: int = 0
    expected: tuple[PeerId, ...] = ()
    """Peers that are to have it, whether they have asked for it yet or not."""


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
    peers: Mapping[PeerRole, int]
    fetching: int
    swarms: int
    memberships: int
    hosts: int
    announces: int
    refused: int
    expired: int
