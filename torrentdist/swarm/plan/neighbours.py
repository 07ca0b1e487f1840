"""Decides which receivers of a large swarm connect to each other: few connections each, and few
hops between any two.

Always: the graph is connected, and both ends of an edge know it. Hosts with consecutive names, and
so those with a share, are spread over the circle: beside each other, they would long be the only
ones that have something to give.
Never: depend on anything but the set of members, so that every master computes the same graph.
"""

import hashlib
from typing import Final

from torrentdist.model.ids import PeerId

Spot = tuple[bytes, PeerId]
"""A member's place in the circle. Spots are in order."""

FULL_MESH: Final = 24
"""Up to this many receivers, each connects to all others."""


def spot_of(peer: PeerId) -> Spot:
    return hashlib.blake2b(peer.encode(), digest_size=8).digest(), peer


def neighbours(size: int, index: int) -> list[int]:
    """Returns the neighbours of member `index` in a circle of `size`: the members 1, 2, 4, 8...
    places away, in both directions."""
    if size <= FULL_MESH:
        return [other for other in range(size) if other != index]
    found: dict[int, None] = {}
    step = 1
    while step <= size // 2:
        found[(index + step) % size] = None
        found[(index - step) % size] = None
        step *= 2
    return list(found)
