"""Counts refused requests by source, so that a stranger cannot fill the audit.

Always: one source costs one entry for each kind of refusal and period, and the number of sources is
bounded.
Pure: no I/O; the clock is passed in.
"""

from typing import Final

import msgspec

from torrentdist.model.events import AccessAudited

PERIOD_SECS: Final = 10.0
MOST_SOURCES: Final = 200
"""Refusals of further sources are counted together."""
OTHERS: Final = "others"


class RefusalCounts:
    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], AccessAudited] = {}
        self._since = 0.0

    def add(self, refusal: AccessAudited, now: float) -> None:
        """Counts one refusal. Refusals with the same source, name and result become one event, with
        the other values of the last of them."""
        if not self._counts:
            self._since = now
        key = (refusal.source, refusal.who, refusal.result)
        if key not in self._counts and len(self._counts) >= MOST_SOURCES:
            key = (OTHERS, "", refusal.result)
            refusal = msgspec.structs.replace(refusal, source=OTHERS, who="", target="", bundle="")
        before = self._counts.get(key)
        self._counts[key] = msgspec.structs.replace(refusal, count=1 + (before.count if before else 0))

    def pending(self) -> list[AccessAudited]:
        """Returns what was counted and is not written yet."""
        return list(self._counts.values())

    def due(self, now: float) -> list[AccessAudited]:
        """Returns what is to be written now, and forgets it."""
        if not self._counts or now - self._since < PERIOD_SECS:
            return []
        due, self._counts = self.pending(), {}
        return due
