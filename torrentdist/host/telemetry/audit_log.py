"""The audit of one daemon: what its senders changed, and what it refused.

Always: refusals are counted by source, so a stranger costs a few lines and bounded memory.
Never: fail or delay a request.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from torrentdist.host.telemetry.refusal_counts import RefusalCounts
from torrentdist.model.events import AccessAudited

LOOK_SECS: Final = 1.0


class Audit(Protocol):
    """Hears what was changed, and what was refused."""

    def changed(self, fact: AccessAudited) -> None: ...

    def refused(self, fact: AccessAudited) -> None: ...


class AuditLog:
    """`keep` gets each change at once, and the refusals of a source after a few seconds."""

    def __init__(self, keep: Callable[[AccessAudited], None]) -> None:
        self._keep = keep
        self._refusals = RefusalCounts()
        self._refused = asyncio.Event()

    def changed(self, fact: AccessAudited) -> None:
        self._keep(fact)

    def refused(self, fact: AccessAudited) -> None:
        self._refusals.add(fact, time.monotonic())
        self._refused.set()

    def pending(self) -> list[AccessAudited]:
        """Returns the refusals that are counted and not kept yet."""
        return self._refusals.pending()

    async def run(self) -> None:
        """Keeps the counted refusals, for ever."""
        while True:
            if not self._refusals.pending():
                self._refused.clear()
                await self._refused.wait()
            await asyncio.sleep(LOOK_SECS)
            for fact in self._refusals.due(time.monotonic()):
                self._keep(fact)
