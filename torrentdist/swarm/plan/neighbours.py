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

FULL_MESH: Final = 8
"""Up to this many receivers, each connects to all others."""
LIMITED_MESH: Final = 24
"""The same if they keep below a rate. Each then gets as much from a holder as from a neighbour. If
these are few, the bundle leaves the holder faster than it is passed on. A host with two such
bundles stays connected to the holder until both shares are done, and fetches much of one there
again."""
SPARSE: Final = 24
"""In larger circles the neighbours are 1, 3, 9, 27... places away instead of 1, 2, 4, 8...: what a
host sends to one waits for what it sends to the others. 64 hosts of the lab need 0.02 T less, 1,000
of the simulator 0.03 T. With so few of 16 hosts, one slow neighbour holds up some of the others."""


def spot_of(peer: PeerId) -> Spot:
    return hashlib.blake2b(peer.encode(), digest_size=8).digest(), peer


def neighbours(size: int, index: int) -> list[int]:
    """Returns the neighbours of member `index` in a circle of `size`: those 1, 2, 4, 8... places
    away, or 1, 3, 9, 27..., in both directions."""
    if size <= FULL_MESH:
        return [other for other in range(size) if other != index]
    found: dict[int, None] = {}
    step, factor = 1, 2 if size <= SPARSE else 3
    while step <= size // 2:
        found[(index + step) % size] = None
        found[(index - step) % size] = None
        step *= factor
    return list(found)
