"""Which master to ask next, and after how long: the search for the leader as a pure function.

Always holds: a search ends by its deadline; a leader that is named is followed at once; whoever is elected but not
ready is asked again in place, with growing waits; otherwise nobody is asked twice in a round, and there is one wait
per full round. A master that is silent or knows no leader never ends the search as long as others can be asked; one
that was silent is asked last, for less long. Old records will do only when a full round has shown that nobody has
newer ones.
Must not do: I/O, reading a clock, drawing random numbers; all of these come in as values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from torrentdist.model.backoff import pause_secs

MAX_LEARNED = 64
"""More masters than any cluster has; an answer that names more is cut."""


class Said(StrEnum):
    """What became of a question, as far as the search cares."""

    NOTHING = "nothing"
    """No connection: nothing runs there."""
    SILENT = "silent"
    """It took the question and did not answer it, or not as a master does."""
    NOT_LEADER = "not_leader"
    NOT_READY = "not_ready"
    """It leads, or is about to, and asks for patience."""
    BEHIND = "behind"
    """It cannot show what we have seen."""
    UNABLE = "unable"
    """It answers but cannot help now: no leader known, ZooKeeper away, shutting down."""


class Reply(msgspec.Struct, frozen=True):
    said: Said
    detail: str
    leader: str | None = None
    masters: tuple[str, ...] = ()


class Policy(msgspec.Struct, frozen=True):
    first_wait: float = 0.05
    """An election within a live ensemble takes some tens of milliseconds."""
    longest_wait: float = 0.8
    """Stays below a second, so that the search adds less than that to a failover."""
    absent_secs: float = 4.0
    """How long to look where nothing runs at all: the time a master needs to start again."""
    in_place: int = 8
    """Then the others are asked too: the one who asks for patience may have been replaced meanwhile."""


POLICY = Policy()


class AskMaster(msgspec.Struct, frozen=True):
    url: str
    wait: float = 0.0
    followed: bool = False
    """It was named as the leader by the answer just heard."""
    silences: int = 0
    """How often in a row it was silent. It may be frozen, or slow: it is given little time at first, and then more."""


class GiveUp(msgspec.Struct, frozen=True):
    """Nobody is left to ask, or no time."""


class Search(msgspec.Struct, frozen=True):
    """Everything a search has to remember."""

    masters: tuple[str, ...]
    asking: str
    began: float
    deadline: float
    asked: frozenset[str] = frozenset()
    """In this round."""
    followed: frozenset[str] = frozenset()
    """Suggestions of this round: each is followed once, so that two standbys cannot send us to and fro."""
    named: str | None = None
    """The last leader that somebody named; the next round starts there."""
    silent: Mapping[str, int] = {}
    """Those that did not answer when they were asked last, and how often in a row."""
    ever_heard: bool = False
    ever_there: bool = False
    """Something runs where we asked, be it frozen."""
    rounds: int = 0
    patience: int = 0
    behind: bool = False
    """Somebody answers, but cannot show what we have seen."""
    content: bool = False
    """Nobody can, so from now on what there is will do."""
    answers: tuple[tuple[str, str], ...] = ()
    """The last answer of each master, for the error message."""

    def story(self) -> str:
        return "; ".join(f"{url}: {detail}" for url, detail in self.answers) or "there is no master to ask"


def normal_url(url: str) -> str:
    return url.strip().rstrip("/")


def learned(masters: Iterable[str]) -> tuple[str, ...]:
    """The usable URLs of an answer: bounded, without doubles."""
    urls = dict.fromkeys(normal_url(url) for url in masters)
    return tuple(url for url in urls if url.startswith(("http://", "https://")))[:MAX_LEARNED]


def begin(masters: Iterable[str], leader: str | None, now: float, deadline: float) -> tuple[Search, AskMaster]:
    """Start with the leader that was seen last, else with the first of the list."""
    known = tuple(dict.fromkeys(normal_url(url) for url in masters))
    if not known:
        raise ValueError("a search needs at least one master")
    first = leader if leader in known else known[0]
    assert first is not None
    search = Search(masters=known, asking=first, began=now, deadline=deadline, asked=frozenset((first,)))
    return search, AskMaster(first)


def step(
    search: Search, reply: Reply, now: float, jitter: float, policy: Policy = POLICY
) -> tuple[Search, AskMaster | GiveUp]:
    """What to do after `reply` of the master being asked. `jitter` is a random number from 0 to 1."""
    search = _remember(search, reply)
    if now >= ends_at(search, policy):
        return search, GiveUp()
    suggested = _suggestion(search, reply)
    if suggested is not None:
        search = replace(search, followed=search.followed | {suggested})
        return _ask(search, AskMaster(suggested, followed=True))
    if reply.said is Said.NOT_READY and search.patience < policy.in_place:
        wait = _wait(search.patience, jitter, policy)
        return _ask_in_time(replace(search, patience=search.patience + 1), AskMaster(search.asking, wait), now, policy)
    unasked = [url for url in search.masters if url not in search.asked]
    if unasked:
        return _ask(replace(search, patience=0), AskMaster(min(unasked, key=lambda url: url in search.silent)))
    return _next_round(search, now, jitter, policy)


def ends_at(search: Search, policy: Policy = POLICY) -> float:
    """The moment at which a search ends at the latest, as far as can be told now."""
    return search.deadline if search.ever_there else min(search.deadline, search.began + policy.absent_secs)


def _remember(search: Search, reply: Reply) -> Search:
    known = tuple(dict.fromkeys((*search.masters, *learned(reply.masters))))
    answers = {**dict(search.answers), search.asking: reply.detail}
    heard = reply.said not in (Said.NOTHING, Said.SILENT)
    silent = {url: times for url, times in search.silent.items() if url != search.asking}
    if reply.said is Said.SILENT:
        silent[search.asking] = search.silent.get(search.asking, 0) + 1
    return replace(
        search,
        masters=known[: max(len(search.masters), MAX_LEARNED)],
        answers=tuple(answers.items()),
        silent=silent,
        ever_there=search.ever_there or reply.said is not Said.NOTHING,
        ever_heard=search.ever_heard or heard,
        behind=search.behind or reply.said is Said.BEHIND,
    )


def _suggestion(search: Search, reply: Reply) -> str | None:
    """The leader named in a refusal, if it may be followed now: a known master, not followed in this round yet."""
    if reply.said is not Said.NOT_LEADER or reply.leader is None:
        return None
    url = normal_url(reply.leader)
    if url not in search.masters or url == search.asking or url in search.followed:
        return None
    if url in search.silent:  # the others have not noticed yet that it is frozen; it is asked last
        return None
    return url


def _ask(search: Search, ask: AskMaster) -> tuple[Search, AskMaster]:
    ask = replace(ask, silences=search.silent.get(ask.url, 0))
    asked = search.asked | {ask.url}
    named = ask.url if ask.followed else search.named
    patience = 0 if ask.url != search.asking else search.patience
    return replace(search, asking=ask.url, asked=asked, named=named, patience=patience), ask


def _ask_in_time(search: Search, ask: AskMaster, now: float, policy: Policy) -> tuple[Search, AskMaster | GiveUp]:
    if now + ask.wait >= ends_at(search, policy):
        return search, GiveUp()
    return _ask(search, ask)


def _next_round(search: Search, now: float, jitter: float, policy: Policy) -> tuple[Search, AskMaster | GiveUp]:
    order = sorted(search.masters, key=lambda url: (url in search.silent, url != search.named))
    wait = _wait(search.rounds, jitter, policy)
    fresh = replace(
        search,
        asked=frozenset(),
        followed=frozenset(),
        rounds=search.rounds + 1,
        patience=0,
        named=None,
        content=search.behind,
    )
    return _ask_in_time(fresh, AskMaster(order[0], wait), now, policy)


def _wait(times: int, jitter: float, policy: Policy) -> float:
    return pause_secs(times + 1, policy.first_wait, policy.longest_wait, jitter)
