"""Spreads a metafile as a tree: the first hosts that ask get it from a master, later ones from
hosts that asked before.

Always: a host is referred only to hosts that asked earlier, so every chain ends at the master, and
few hosts are referred to the same one. A host that asks again failed to get it, and gets it from
the master.
Pure: no I/O and no clock. Liveness is passed in by the caller.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from torrentdist.model.ids import Digest

GIVEN_BYTES: Final = 128 * 1024
"""How many bytes of one metafile a master, and each host, sends before other hosts take over."""
FEWEST: Final = 2
"""Copies that each of them sends even of the largest metafile."""
FORGET_SECS: Final = 60.0


class _Asked(msgspec.Struct, eq=False):
    at: float
    order: list[str] = []
    names: set[str] = set()


class MetafileRelay:
    def __init__(self) -> None:
        self._asked: dict[Digest, _Asked] = {}

    def giver(self, digest: Digest, size: int, asker: str, now: float, can_give: Callable[[str], bool]) -> str | None:
        """Returns the host that sends `asker` a metafile of `size` bytes. None means this
        master."""
        self._asked = {key: asked for key, asked in self._asked.items() if now - asked.at <= FORGET_SECS}
        asked = self._asked.setdefault(digest, _Asked(now))
        asked.at = now
        if asker in asked.names:
            return None
        number = len(asked.order)
        asked.order.append(asker)
        asked.names.add(asker)
        each = max(FEWEST, GIVEN_BYTES // max(1, size))
        while number >= each:
            number = number // each - 1
            if can_give(asked.order[number]):
                return asked.order[number]
        return None
