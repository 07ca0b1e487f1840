"""Which receivers connect to which in a large swarm: few connections each, few hops between any
two.

Always: the graph is connected, and both ends of an edge know it.
Never: depend on anything but the set of members, so that every master draws the same graph.
"""

from __future__ import annotations

from typing import Final

FULL_MESH: Final = 24
"""Up to this many receivers, everybody connects to everybody."""


def neighbours(size: int, index: int) -> list[int]:
    """The neighbours of member `index` in a circle of `size`: those 1, 2, 4, 8... places away, both
    ways."""
    if size <= FULL_MESH:
        return [other for other in range(size) if other != index]
    found: dict[int, None] = {}
    step = 1
    while step <= size // 2:
        found[(index + step) % size] = None
        found[(index - step) % size] = None
        step *= 2
    return list(found)
