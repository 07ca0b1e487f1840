"""Decides to which masters a peer announces itself, and when it announces to each of them next.

Always: each master has its own schedule, so that a dead one delays no other. Announces to a master
that does not answer become rarer. Configured masters stay forever; a learned one is forgotten when
it has been dead for long and no master names it.
Pure: no I/O and no clock.
"""

import math
from collections.abc import Iterable, Set
from typing import Final

import msgspec

from torrentdist.model.backoff import pause_secs
from torrentdist.model.wire.headers import UNKNOWN_AGE, AnswerAge
from torrentdist.model.wire.swarm_messages import SwarmAnswer

POKE_SPACING_SECS: Final = 0.05
"""Shortest interval between two announces to the same master, however much changes."""
FIRST_BACKOFF_SECS: Final = 0.5
LONGEST_BACKOFF_SECS: Final = 15.0
FORGET_SECS: Final = 300.0
"""How long a learned master may be dead before announces to it end."""
LONGEST_INTERVAL_SECS: Final = 3600.0
MAX_LEARNED: Final = 64


class MasterContact(msgspec.Struct, frozen=True, kw_only=True):
    """The contact with one master, for display and metrics."""

    url: str
    failures: int
    """Consecutive failures. 0 means that the last announce was answered."""
    problem: str
    next_in: float
    """Seconds until the next announce. Infinite while one is in progress."""


class AnnouncedMaster(msgspec.Struct, eq=False):
    """One master that receives announces."""

    url: str
    due: float
    """When the next announce is due. Infinite while one is in progress."""
    alive_at: float
    """When the master last answered, or was first heard of."""
    failures: int = 0
    problem: str = ""
    announced_at: float = float("-inf")
    begun: int = 0
    """Number of the last announce that was begun, among all of this peer."""
    answer: SwarmAnswer | None = None
    """The last answer. None after a failure."""
    age: AnswerAge = UNKNOWN_AGE
    """That of the last answer."""

    def begin(self, number: int, now: float) -> None:
        """Records that an announce starts."""
        self.begun, self.announced_at, self.due = number, now, math.inf

    def answered(self, answer: SwarmAnswer, now: float, age: AnswerAge = UNKNOWN_AGE) -> None:
        self.failures, self.problem, self.alive_at, self.answer, self.age = 0, "", now, answer, age
        self.due = min(self.due, now + min(max(answer.interval, POKE_SPACING_SECS), LONGEST_INTERVAL_SECS))

    def failed(self, problem: str, now: float, chance: float) -> None:
        """Records a failure. `chance`, from 0 to 1, spreads out the next attempts of many peers."""
        self.failures += 1
        self.answer = None
        self.problem = problem
        self.due = now + pause_secs(self.failures, FIRST_BACKOFF_SECS, LONGEST_BACKOFF_SECS, chance)


class AnnounceSchedule:
    """All masters that receive announces, by URL."""

    def __init__(self) -> None:
        self._masters: dict[str, AnnouncedMaster] = {}
        self._listed: frozenset[str] = frozenset()
        """Masters that the last picture named."""

    def masters(self) -> list[AnnouncedMaster]:
        return list(self._masters.values())

    def answers(self) -> dict[str, SwarmAnswer]:
        """Returns the last answers of the masters that answer."""
        return {url: master.answer for url, master in self._masters.items() if master.answer is not None}

    def ages(self) -> dict[str, AnswerAge]:
        """Returns the ages of these answers."""
        return {url: master.age for url, master in self._masters.items()}

    def contacts(self, now: float) -> tuple[MasterContact, ...]:
        return tuple(
            MasterContact(url=m.url, failures=m.failures, problem=m.problem, next_in=max(0.0, m.due - now))
            for m in self._masters.values()
        )

    def poke(self, by: float = -math.inf) -> None:
        """Makes an announce due at every master that answers: at `by`, or now. Many pokes cause one
        announce."""
        for master in self._masters.values():
            if not master.failures:
                master.due = min(master.due, max(by, master.announced_at + POKE_SPACING_SECS))

    def know(self, configured: Iterable[str], named: Iterable[str], now: float, *, announcing: Set[str]) -> None:
        """Adopts the configured masters and those that other masters name, and forgets masters that
        are gone.

        A dead master that is named again has come back, so its next announce is due now.
        """
        wanted = dict.fromkeys(url.rstrip("/") for url in configured)
        listed = frozenset(url.rstrip("/") for url in named if _is_url(url))
        room = MAX_LEARNED - sum(url not in wanted for url in self._masters)
        for url in [*wanted, *sorted(listed - wanted.keys() - self._masters.keys())[: max(0, room)]]:
            self._masters.setdefault(url, AnnouncedMaster(url, due=now, alive_at=now))
        for url in sorted(listed - self._listed):
            if url in self._masters and self._masters[url].failures:
                self._masters[url].due = min(self._masters[url].due, now)
        self._listed = listed
        for url, master in list(self._masters.items()):
            dead = master.failures and now - master.alive_at > FORGET_SECS
            if dead and url not in wanted and url not in listed and url not in announcing:
                del self._masters[url]


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://")) and len(text) <= 300
