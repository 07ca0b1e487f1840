"""How often peers come to a master's directory, and how much of it any of them can fill, each with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Periods:
    """How often peers are asked to come."""

    fetching_secs: float = 1.0
    unsettled_secs: float = 0.25
    """Who has come by itself, a moment ago: others come with it, and its place changes."""
    seeding_secs: float = 15.0
    stock_secs: float = 300.0
    """libtorrent's own clients come no more often than this, whatever a tracker answers (`min_announce_interval`)."""
    few: int = 16
    """So many that fetch come that often; of more each comes less often, by the root of their number."""
    fetching_per_sec: float = 500.0
    """More fetching peers than come at this rate are asked to come less often, so that a wave can't drown a master."""
    grace_secs: float = 1.0
    rotate_secs: float = 60.0
    """How long a peer is handed the same others, as long as they stay."""

    def fetching(self, peers: int) -> float:
        """When one of so many that fetch is to come again."""
        return max(self.fetching_secs * max(1.0, math.sqrt(peers / self.few)), peers / self.fetching_per_sec)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What hostile input can make us hold."""

    swarms_per_peer: int = 10_000
    peers_per_swarm: int = 50_000
    peers_per_host: int = 5_000
    peers: int = 50_000
    memberships: int = 500_000
    handout: int = 50
