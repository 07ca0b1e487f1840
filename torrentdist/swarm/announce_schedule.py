"""Which masters a peer tells about itself, and when it tells each of them next.

Always: each master has its own time, so a dead one delays nobody. A master that doesn't answer is
told less and less often. Configured masters are told for ever; a learned one is forgotten when it
has been dead for long and no master names it.
Pure: no I/O and no clock.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Set
from typing import Final

import msgspec

from torrentdist.model.backoff import pause_secs
from torrentdist.model.wire.swarm_messages import SwarmAnswer

POKE_SPACING_SECS: Final = 0.05
"""Time between two announces to the same master, however much changes."""
FIRST_BACKOFF_SECS: Final = 0.5
LONGEST_BACKOFF_SECS: Final = 15.0
FORGET_SECS: Final = 300.0
"""How long a learned master may be dead before it is told no more."""
LONGEST_INTERVAL_SECS: Final = 3600.0
MAX_LEARNED: Final = 64


class MasterContact(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the contact to one master, for people and metrics."""

    url: str
    failures: int
    """Failures in a row. 0: it answered when last asked."""
    problem: str
    next_in: float
    """Seconds until it is told again. Infinite while it is being told."""


class ToldMaster(msgspec.Struct, eq=False):
    """One master that is told."""

    url: str
    due: float
    """When it is told next. Infinite while it is being told."""
    alive_at: float
    """When it last answered, or was first heard of."""
    failures: int = 0
    problem: str = ""
    told_at: float = float("-inf")
    answer: SwarmAnswer | None = None
    """Its last answer. None after a failure."""
    turn: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    """Held during a request, so that there is one at a time."""

    def begin(self, now: float) -> None:
        """Notes that it is being told."""
        self.told_at, self.due = now, math.inf

    def answered(self, answer: SwarmAnswer, now: float) -> None:
        self.failures, self.problem, self.alive_at, self.answer = 0, "", now, answer
        self.due = min(self.due, now + min(max(answer.interval, POKE_SPACING_SECS), LONGEST_INTERVAL_SECS))

    def failed(self, problem: str, now: float, chance: float) -> None:
        """Notes a failure. `chance`, from 0 to 1, spreads the next attempts of many peers."""
        self.failures += 1
        self.answer = None
        self.problem = problem
        self.due = now + pause_secs(self.failures, FIRST_BACKOFF_SECS, LONGEST_BACKOFF_SECS, chance)


class AnnounceSchedule:
    """All masters that are told, by URL."""

    def __init__(self) -> None:
        self._masters: dict[str, ToldMaster] = {}
        self._listed: frozenset[str] = frozenset()
        """Masters that the last picture named."""

    def masters(self) -> list[ToldMaster]:
        return list(self._masters.values())

    def answers(self) -> dict[str, SwarmAnswer]:
        """The last answers of the masters that answer."""
        return {url: master.answer for url, master in self._masters.items() if master.answer is not None}

    def contacts(self, now: float) -> tuple[MasterContact, ...]:
        return tuple(
            MasterContact(url=m.url, failures=m.failures, problem=m.problem, next_in=max(0.0, m.due - now))
            for m in self._masters.values()
        )

    def poke(self) -> None:
        """Makes the masters that answer due at once. Many pokes make one announce."""
        for master in self._masters.values():
            if not master.failures:
                master.due = min(master.due, master.told_at + POKE_SPACING_SECS)

    def know(self, configured: Iterable[str], named: Iterable[str], now: float, *, being_told: Set[str]) -> None:
        """Takes in the configured masters and those that masters name, and forgets masters that are
        gone.

        A dead master that is named again is told at once: it has come back.
        """
        wanted = {url.rstrip("/") for url in configured}
        listed = frozenset(url.rstrip("/") for url in named if _is_url(url))
        room = MAX_LEARNED - sum(url not in wanted for url in self._masters)
        for url in [*wanted, *sorted(listed - wanted - self._masters.keys())[: max(0, room)]]:
            self._masters.setdefault(url, ToldMaster(url, due=now, alive_at=now))
        for url in listed - self._listed:
            if url in self._masters and self._masters[url].failures:
                self._masters[url].due = min(self._masters[url].due, now)
        self._listed = listed
        for url, master in list(self._masters.items()):
            dead = master.failures and now - master.alive_at > FORGET_SECS
            if dead and url not in wanted and url not in listed and url not in being_told:
                del self._masters[url]


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://")) and len(text) <= 300
