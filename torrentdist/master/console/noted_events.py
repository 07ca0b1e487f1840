"""The last events of this master that people ask about, in memory.

Always: bounded. The report has the distant past.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from torrentdist.master.console.event_lines import EventLine, of_fact
from torrentdist.model.events import Fact

MOST = 2000


class NotedEvents:
    """`now` returns the time by ZooKeeper's clock; by ours while it is unknown."""

    def __init__(self, master: str, now: Callable[[], float]) -> None:
        self._master = master
        self._now = now
        self.lines: deque[EventLine] = deque(maxlen=MOST)

    def hear(self, fact: Fact) -> None:
        line = of_fact(fact, self._now(), self._master)
        if line is not None:
            self.lines.append(line)
