"""Who knows whom in a large swarm: few connections each, few hops between any two.

Always holds: among those who are there the graph is connected, and each edge is known to both of its ends. Must not do:
depend on anything but the set of members, so that every master draws the same.
"""

from __future__ import annotations

from typing import Final

FULL_MESH: Final = 24
"""Up to so many, everybody knows everybody."""


def neighbours(size: int, index: int) -> list[int]:
    """Of the `index`-th of `size` members in a circle: those 1, 2, 4, 8... places away, both ways."""
    if size <= FULL_MESH:
        return [other for other in range(size) if other != index]
    found: dict[int, None] = {}
    step = 1
    while step <= size // 2:
        found[(index + step) % size] = None
        found[(index - step) % size] = None
        step *= 2
    return list(found)
