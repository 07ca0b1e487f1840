"""Who gives a metafile to whom, so that it goes round among hosts that all want it in the same moment: the first that
ask a master get it from there, the others from those that asked before them.

Always holds: whom an asker is sent to asked before it, so that every chain ends at the master, and nobody is sent more
askers than a few copies allow; who asks again has had no luck, and is given it at once. Must not do: read a clock, do
I/O, or know who is alive: that is asked each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from torrentdist.model.ids import Digest

GIVEN_BYTES: Final = 128 * 1024
"""What a master, and each host, gives of one metafile before others do."""
FEWEST: Final = 2
"""So many are given the largest, too."""
FORGET_SECS: Final = 60.0


class _Asked(msgspec.Struct, eq=False):
    at: float
    order: list[str] = []
    names: set[str] = set()


class Handing:
    def __init__(self) -> None:
        self._asked: dict[Digest, _Asked] = {}

    def giver(self, digest: Digest, size: int, asker: str, now: float, can_give: Callable[[str], bool]) -> str | None:
        """The host that gives `asker` a metafile of so many bytes; None: the master does."""
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
