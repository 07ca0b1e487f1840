"""Decides how many blocks one peer requests from another at a time, in a swarm with many receivers.

Always: the window is narrow while many share a swarm, so that small messages do not wait behind
data. It is wide only if a narrow window would slow down a connection that is fast or long.
Pure: no I/O, no clock, no libtorrent.
"""

import math
from typing import Final

import msgspec

BLOCK: Final = 16 * 1024
BLOCKS_UNDER_WAY: Final = 32
"""Blocks that a receiver has requested from all its peers together. A small message waits behind
them: 0.17 s at 25 Mbit/s."""
FEWEST_BLOCKS: Final = 2
WIDE_BLOCKS: Final = 64
"""The window of a fast connection. With 8 blocks, four receivers on one machine take 1.6 times as
long."""
WIDE_SECS: Final = 0.17
"""A connection is fast if it carries WIDE_BLOCKS in this time."""
LONG_SECS: Final = 6.0
"""Shorter transfers gain nothing from a wider window, because reconnecting takes up to a second."""
ALONE_SECS: Final = 1.0
"""How long a peer without a place in the plan requests little. Others often arrive at the same
moment, and the plan will give them what this peer would request now."""
QUICK: Final = 12 * 1024 * 1024
"""Bytes per second. From about 100 Mbit/s on, two blocks at a time from each peer do not fill a
link."""
NEAR: Final = 0.2
"""Fraction of the rate that two blocks per peer can carry. The narrow window may limit a receiver
that is faster, since never all peers have something for it. Within a building, a full link stays
far below."""


class NetworkPath(msgspec.Struct, frozen=True):
    """The network between a receiver and its connected peers."""

    peers: int = 0
    rtt: float = 0.0
    """Round-trip time to these peers in seconds; 0 if unknown."""

    def carries(self, blocks: int) -> float:
        """Returns the most bytes per second, if this many blocks are requested from each peer at a
        time."""
        return self.peers * blocks * BLOCK / self.rtt if self.rtt else math.inf


def window(receivers: int, *, quick: bool = False) -> int:
    """Returns the number of blocks that one peer requests from another at a time."""
    return WIDE_BLOCKS if quick else max(FEWEST_BLOCKS, BLOCKS_UNDER_WAY // max(1, receivers))


def is_quick(rate: float, peers: int, left: int) -> bool:
    """Whether a narrow window slows down `peers` connections that carry `rate` together, and
    fetching `left` bytes takes long enough for a wider one to pay."""
    return rate * WIDE_SECS >= max(1, peers) * WIDE_BLOCKS * BLOCK and left >= rate * LONG_SECS


def queue_secs(receivers: int | None, rate: float, path: NetworkPath) -> int:
    """Returns how many seconds' worth of data one peer requests from another at a time. 0 means two
    blocks.

    A peer that arrived when there were few receivers could otherwise request much and monopolize
    the holders. Over a long distance two blocks are a limit by themselves; `rate` then comes close
    to it.
    """
    limited = rate >= QUICK or rate > NEAR * path.carries(FEWEST_BLOCKS)
    return 1 if receivers is None or limited else 0
