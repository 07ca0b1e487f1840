"""The last events that people ask about: those of this master, in memory, and those of all masters.

Always: bounded. The report has the distant past. A master that does not answer is named.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from torrentdist.master.access.audit_trail import MOST_ENTRIES, AuditTrail
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.event_lines import (
    EventLine,
    of_absence,
    of_audit,
    of_distribution,
    of_fact,
    of_failover,
    of_gone,
    once,
    without_repeats,
)
from torrentdist.master.console.host_asking import HostAsking
from torrentdist.master.history.distribution_history import DistributionHistory
from torrentdist.master.http.routes import LONGEST_WAIT
from torrentdist.master.presence.attention_sight import READS
from torrentdist.master.presence.presence_plan import returned
from torrentdist.master.reads.readable_records import readable
from torrentdist.model.events import Fact
from torrentdist.security.authorization import Principal, may_read, reads_everything

MOST = 2000
MOST_FAILOVERS = 100


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


class Happenings(msgspec.Struct, frozen=True):
    """What happened anywhere, as far as a sender may read it."""

    sight: ConsoleSight
    noted: NotedEvents
    trail: AuditTrail
    history: DistributionHistory
    asking: HostAsking

    async def everywhere(self, sender: Principal, kept: Mapping[str, str]) -> tuple[list[EventLine], list[str]]:
        """Returns what happened, and the masters that do not answer. `kept`: the filters that
        others apply."""
        wanted = {**kept, READS: ",".join(sender.reads)}
        (others, silent), failovers = await asyncio.gather(
            self.asking.events(self.sight.leadership.me, wanted), self.sight.failovers(MOST_FAILOVERS)
        )
        lines = [*self.own(sender), *others, *map(of_failover, failovers or ())]
        told = (one for one in self.history.summaries() if may_read(sender, one.bundle))
        lines += [line for one in told for line in of_distribution(one)]
        seen = readable(self.sight.snapshot(), sender)
        lines += map(of_gone, self.sight.attention.gone(seen))
        lines += [line for absence in returned(seen) for line in of_absence(*absence)]
        return [*without_repeats(lines)], silent

    def own(self, sender: Principal) -> list[EventLine]:
        """Returns what this master alone knows."""
        audited = once(self.trail.entries(sender, LONGEST_WAIT, "", "", MOST_ENTRIES))
        return [*(line for line in self.noted.lines if _may_see(sender, line)), *map(of_audit, audited)]


def _may_see(sender: Principal, line: EventLine) -> bool:
    """Whether an event of this master is about no bundle and no digest that the sender may not
    read."""
    if reads_everything(sender) or line.page == "masters":
        return True
    return line.page == "bundles" and may_read(sender, line.about)
