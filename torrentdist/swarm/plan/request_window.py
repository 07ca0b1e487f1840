"""How many blocks one peer asks of another at a time, in a swarm of many receivers.

Always: the window is narrow while many share a swarm, so that small messages don't wait behind
data; it is wide only where a narrow one would hold up a connection that is quick or far.
Pure: no I/O, no clock, no libtorrent.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

BLOCK: Final = 16 * 1024
BLOCKS_UNDER_WAY: Final = 32
"""Blocks that a receiver has asked for, of all its peers together. A small message waits behind
them: 0.17 s at 25 Mbit/s."""
FEWEST_BLOCKS: Final = 2
WIDE_BLOCKS: Final = 64
"""The window of a quick connection. With 8 blocks, four receivers on one machine take 1.6 times as
long."""
WIDE_SECS: Final = 0.17
"""A connection is quick if it carries WIDE_BLOCKS in this time."""
LONG_SECS: Final = 6.0
"""Shorter transfers gain nothing by a wider window: connecting anew takes up to a second."""
ALONE_SECS: Final = 1.0
"""How long a peer without a place in the plan asks for little. Others often arrive in the same
moment, and the plan will give them what this peer would ask for now."""
QUICK: Final = 12 * 1024 * 1024
"""Bytes per second. From about 100 Mbit/s on, two blocks at a time of each peer don't fill a
link."""
NEAR: Final = 0.2
"""Share of what two blocks of each peer can carry. A receiver above it may be held up by the narrow
window, since never all peers have something for it. Within a building a full link stays far
below."""


class NetworkPath(msgspec.Struct, frozen=True):
    """The network between a receiver and the peers that it is connected to."""

    peers: int = 0
    rtt: float = 0.0
    """Seconds to them and back. 0 means unknown."""

    def carries(self, blocks: int) -> float:
        """Bytes per second at most, with this many blocks asked of each peer at a time."""
        return self.peers * blocks * BLOCK / self.rtt if self.rtt else math.inf


def window(receivers: int, *, quick: bool = False) -> int:
    """Blocks that one peer asks of another at a time."""
    return WIDE_BLOCKS if quick else max(FEWEST_BLOCKS, BLOCKS_UNDER_WAY // max(1, receivers))


def is_quick(rate: float, peers: int, left: int) -> bool:
    """Whether a narrow window holds up `peers` connections that carry `rate` together, and the
    `left` bytes take long enough for a wider one to pay."""
    return rate * WIDE_SECS >= max(1, peers) * WIDE_BLOCKS * BLOCK and left >= rate * LONG_SECS


def queue_secs(receivers: int | None, rate: float, path: NetworkPath) -> int:
    """Seconds' worth of data that one peer asks of another at a time. 0 means two blocks.

    A peer that arrived when there were few receivers could ask for much, and would have the holders
    to itself. Where peers are far away two blocks are a limit of their own; `rate` then gets near
    it.
    """
    limited = rate >= QUICK or rate > NEAR * path.carries(FEWEST_BLOCKS)
    return 1 if receivers is None or limited else 0
