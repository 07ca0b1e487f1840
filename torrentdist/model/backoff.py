"""Decides how long to wait before a retry, and whether a failure is worth reporting.

Always: the pause grows up to a limit and is randomized, so that hosts that failed together do not
retry together. A failure is reported once until the next success.
Never: sleep or log; the caller does both.
"""

import random
from collections.abc import Iterable

MOST_DOUBLINGS = 30
SHORTEST_PAUSE_SECS = 0.05


def pause_secs(failures: int, first: float, longest: float, jitter: float = 1.0) -> float:
    """Returns the pause in seconds after this many consecutive failures. `jitter` (0 to 1) varies
    its upper half."""
    full = min(longest, first * 2.0 ** min(max(failures, 1) - 1, MOST_DOUBLINGS))
    return full * (0.5 + 0.5 * jitter)


def secs_until_retry(not_before: Iterable[float], planned_at: float, now: float, longest: float) -> float:
    """Returns the seconds until the next retry is due, at most `longest`.

    The plan of `planned_at` has already seen every retry that was due by then. A retry that became
    due after that plan follows after the shortest pause.
    """
    due = min((t - now for t in not_before if t > planned_at), default=longest)
    return min(longest, max(SHORTEST_PAUSE_SECS, due))


class Retry:
    """One thing that is retried until it succeeds. Its pauses range from `first` to `longest`
    seconds."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._failures = 0
        self._told: set[str] = set()

    def failed(self, state: str) -> bool:
        """Records a failure. Returns whether it is the first of this `state` since the last
        success."""
        self._failures += 1
        is_news = state not in self._told
        self._told.add(state)
        return is_news

    def succeeded(self) -> None:
        self._failures = 0
        self._told.clear()

    @property
    def pause_secs(self) -> float:
        """The pause before the next attempt."""
        return pause_secs(self._failures, self._first, self._longest, random.random())


def kind_of(error: Exception) -> str:
    """Returns the kind of an error: its code, or its class if it has none."""
    return getattr(error, "code", None) or type(error).__name__
