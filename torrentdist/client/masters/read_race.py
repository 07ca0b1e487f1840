"""Gets an answer that any master can give, for commands that only read. The masters race, each
starting a little later.

Always: there is an answer or an error within the given time, however many masters there are. The
first master is asked alone. The next one is asked too when it refuses or is silent for a moment.
Old records are accepted if no master has newer ones, or when time is nearly up.
Never: look into an answer, or end the race while a master may still win it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from torrentdist.model.errors import TorrentdistError

T = TypeVar("T")

READ_SECS = 1.8
"""Time for all requests of a command that only reads, so that the command ends within 2 s."""
LEADER_SECS = 0.9
"""Part of this time in which only the leader is asked, for what only the leader knows."""
NEXT_SECS = 0.4
SHARE_FOR_ASKING = 0.5
"""Share of the time after which every master has been asked."""
SHARE_FOR_OLD = 0.35
"""Share of the time, at its end, during which old records are accepted."""
ROUND_SECS = 0.1

Attempt = Callable[[str, bool, float], Awaitable[T]]
"""Asks one master, given its URL, whether old records are accepted, and its time in seconds."""


class Passed(Exception):
    """This master has no answer; another one may."""

    def __init__(
        self, detail: str, *, error: TorrentdistError | None = None, leader: str | None = None, behind: bool = False
    ) -> None:
        super().__init__(detail)
        self.error = error
        self.leader = leader
        """The leader that this master names."""
        self.behind = behind
        """Whether its records are too old. It can answer once old records are accepted."""


class NoAnswer(Exception):
    """No master answered in time. `answers` contains what each of them said last, and `error` the
    last refusal."""

    def __init__(self, answers: dict[str, str], error: TorrentdistError | None) -> None:
        super().__init__("; ".join(f"{url}: {detail}" for url, detail in answers.items()))
        self.answers = answers
        self.error = error


async def first_answer(masters: Callable[[], Sequence[str]], attempt: Attempt[T], secs: float, *, rounds: int = 0) -> T:
    """Returns the first answer of any master. All are asked `rounds` times, or until time is up if
    `rounds` is 0."""
    race = _Race(attempt, secs)
    try:
        while True:
            takes_old = race.takes_old()
            winner = await race.round(list(masters()), takes_old)
            if winner is not None:
                return winner.result()
            rounds -= race.is_idle()
            if race.is_over() or (rounds == 0 and race.is_idle()):
                raise NoAnswer(race.answers, race.error)
            if race.takes_old() == takes_old:
                await asyncio.sleep(ROUND_SECS)
    finally:
        await race.cancel()


class _Race(Generic[T]):
    def __init__(self, attempt: Attempt[T], secs: float) -> None:
        self._attempt = attempt
        self._clock = asyncio.get_running_loop().time
        self._secs = secs
        self._end = self._clock() + secs
        self._old_at = self._end - secs * SHARE_FOR_OLD
        self._running: dict[asyncio.Future[T], str] = {}
        self._behind = False
        self.answers: dict[str, str] = {}
        self.error: TorrentdistError | None = None

    def is_over(self) -> bool:
        return self._clock() >= self._end

    def is_idle(self) -> bool:
        return not self._running

    def takes_old(self) -> bool:
        return self._behind or self._clock() >= self._old_at

    async def round(self, ahead: list[str], takes_old: bool) -> asyncio.Future[T] | None:
        """Asks these masters once, while also waiting for those of earlier rounds. Returns the
        winner, or None."""
        step = min(NEXT_SECS, self._secs * SHARE_FOR_ASKING / max(1, len(ahead)))
        next_at = now = self._clock()
        while (ahead or self._running) and now < self._end and (takes_old or now < self._old_at):
            if ahead and (now >= next_at or not self._running):
                self._ask(ahead.pop(0), takes_old)
                next_at = now + step
            until = min(self._end, next_at if ahead else self._end, self._end if takes_old else self._old_at)
            done, _ = await asyncio.wait(self._running, timeout=until - now, return_when=asyncio.FIRST_COMPLETED)
            now = self._clock()
            for attempt in done:
                url = self._running.pop(attempt)
                error = attempt.exception()
                if not isinstance(error, Passed):
                    return attempt
                self._note(url, error, ahead)
                next_at = now
        return None

    def _ask(self, url: str, takes_old: bool) -> None:
        left = self._end - self._clock()
        self.answers.setdefault(url, f"no answer within {left:.1f} s")
        self._running[asyncio.ensure_future(self._attempt(url, takes_old, left))] = url

    def _note(self, url: str, passed: Passed, ahead: list[str]) -> None:
        if not (self.is_over() and passed.error is None):  # what the end cut off says less than what came before
            self.answers[url] = str(passed)
        self.error = passed.error or self.error
        self._behind = self._behind or passed.behind
        if passed.leader in ahead:
            ahead.remove(passed.leader)
            ahead.insert(0, passed.leader)

    async def cancel(self) -> None:
        for attempt in self._running:
            attempt.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
