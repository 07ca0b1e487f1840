"""Where the time of a broadcast goes, in hundredths of T, from what came down each host's link.

Always: the parts of a host add up to its time. Never: look at anything but the links and the
moments at which hosts were done, so that the accounting costs the hosts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

from bench.swarm.scenario import BEGUN, MIB, Outcome, Scenario

Seen = Sequence[tuple[float, float]]
"""Points of time with the copies that had come down a host's link."""


@dataclass(frozen=True)
class Account:
    """Shares of T, for one host or as the mean of many."""

    start: float
    """Until the first pieces come."""
    early: float
    """Idle link while T is not over: the plan or the peers had nothing for this host."""
    late: float
    """Idle link after T: the tail, in which the receivers give each other what they lack."""
    end: float
    """From the last byte to the published directory."""
    once: float
    """The bytes of the bundle, with their headers."""
    twice: float
    """Blocks that came twice."""
    messages: float
    """What else came: messages between peers, acknowledgements, metafile and announces."""

    @property
    def total(self) -> float:
        return float(sum(getattr(self, each.name) for each in fields(self)))

    def line(self) -> str:
        parts = (
            f"start {self.start:.3f}",
            f"idle before T {self.early:.3f}, after T {self.late:.3f}",
            f"end {self.end:.3f}",
            f"once {self.once:.3f}, twice {self.twice:.3f}",
            f"messages {self.messages:.3f}",
        )
        return f"{self.total:.3f} T = " + ", ".join(parts)


def accounts(outcome: Outcome, scenario: Scenario, link_time: float) -> dict[str, Account]:
    """Returns the account of each measured host. None without limited links."""
    if not scenario.rate:
        return {}
    per_sec = scenario.rate * 1e6 / 8 / (scenario.size * MIB)
    return {
        host: _account(outcome.progress[host], outcome.starts[host], end, per_sec, link_time, outcome.duplicates)
        for host, end in outcome.ends.items()
        if host in outcome.progress and host not in outcome.aside
    }


def mean_of(several: Sequence[Account]) -> Account:
    return Account(*(sum(getattr(one, each.name) for one in several) / len(several) for each in fields(Account)))


def lines(outcome: Outcome, scenario: Scenario, link_time: float) -> list[str]:
    """Returns what a run prints: the mean of all hosts, and the last host."""
    every = accounts(outcome, scenario, link_time)
    if not every:
        return []
    last = max(every, key=lambda host: outcome.ends[host])
    return [f"mean host: {mean_of(list(every.values())).line()}", f"last host: {every[last].line()}"]


def _account(seen: Seen, began: float, ended: float, per_sec: float, link_time: float, duplicates: float) -> Account:
    points = [(began, 0.0), *((at, copies) for at, copies in seen if began < at < ended), (ended, _at(seen, ended))]
    whole = points[-1][1]
    first = next((at for at, copies in points if copies >= BEGUN), ended)
    full = max(first, next(at for at, copies in points if copies >= whole - BEGUN))
    idle = [0.0, 0.0]
    for (at, before), (then, after) in pairwise(points):
        if first <= at and then <= full:
            idle[at - began >= link_time] += max(0.0, then - at - (after - before) / per_sec)
    busy = (ended - began) - (first - began) - (ended - full) - sum(idle)
    once, twice = link_time, duplicates * link_time
    parts = (first - began, *idle, ended - full, once, twice, busy - once - twice)
    return Account(*(part / link_time for part in parts))


def _at(seen: Seen, moment: float) -> float:
    """Returns the copies that had come by a moment, between two looks in proportion."""
    before = (0.0, 0.0)
    for at, copies in seen:
        if at >= moment:
            share = (moment - before[0]) / (at - before[0]) if at > before[0] else 1.0
            return before[1] + share * (copies - before[1])
        before = (at, copies)
    return before[1]
