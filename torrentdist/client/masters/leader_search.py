"""Decides which master to ask next, and after how long, in the search for the leader.

Always: a search ends by its deadline. A leader that a master names is followed at once. A master
that is elected but not ready is asked again, with growing waits. Otherwise each master is asked
once a round, with one wait per round. A silent master never ends the search: it is asked last, and
for less long. Old records are accepted only after a full round in which no master had newer ones.
Pure: no I/O, no clock and no random numbers; the caller passes these in.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from torrentdist.model.backoff import pause_secs

MAX_LEARNED = 64
"""More masters than any cluster has; an answer that names more is cut."""


class Said(StrEnum):
    """The outcome of asking one master, as far as it concerns the search."""

    NOTHING = "nothing"
    """No connection: no server runs there."""
    SILENT = "silent"
    """It accepted the request, but did not answer as a master does."""
    NOT_LEADER = "not_leader"
    NOT_READY = "not_ready"
    """It leads or is about to, and should be asked again soon."""
    BEHIND = "behind"
    """Its records lack something that we have seen."""
    UNABLE = "unable"
    """It answers but cannot help now: it knows no leader, cannot reach ZooKeeper, or is shutting
    down."""


class Reply(msgspec.Struct, frozen=True):
    said: Said
    detail: str
    leader: str | None = None
    masters: tuple[str, ...] = ()


class Policy(msgspec.Struct, frozen=True):
    first_wait: float = 0.05
    """The first wait, in seconds. An election takes some tens of milliseconds if ZooKeeper is
    healthy."""
    longest_wait: float = 0.8
    """The longest wait, in seconds. The search prolongs a failover by at most this."""
    absent_secs: float = 4.0
    """How long to search if no master runs at all: the time that a master needs to restart."""
    in_place: int = 8
    """How often a master that is not ready is asked before the others are: it may have been
    replaced meanwhile."""


POLICY = Policy()


class AskMaster(msgspec.Struct, frozen=True):
    url: str
    wait: float = 0.0
    followed: bool = False
    """Whether the last answer named this master as the leader."""
    silences: int = 0
    """Number of consecutive times that it was silent. It may be frozen or slow, so it gets little
    time at first, and more each time."""


class GiveUp(msgspec.Struct, frozen=True):
    """No master is left to ask, or no time is left."""


class Search(msgspec.Struct, frozen=True):
    masters: tuple[str, ...]
    asking: str
    began: float
    deadline: float
    asked: frozenset[str] = frozenset()
    """The masters asked in this round."""
    followed: frozenset[str] = frozenset()
    """Leaders named in this round. Each is followed once, so that two standbys cannot send us back
    and forth."""
    named: str | None = None
    """The leader named last. The next round starts there."""
    silent: Mapping[str, int] = {}
    """The masters that did not answer last time, and how often in a row."""
    ever_heard: bool = False
    ever_there: bool = False
    """Whether any server answered a connection, even a frozen one."""
    rounds: int = 0
    patience: int = 0
    behind: bool = False
    """Whether a master answered whose records lack something that we have seen."""
    content: bool = False
    """Whether old records are accepted from now on, because no master has newer ones."""
    answers: tuple[tuple[str, str], ...] = ()
    """The last answer of each master, for the error message."""

    def story(self) -> str:
        return "; ".join(f"{url}: {detail}" for url, detail in self.answers) or "there is no master to ask"


def normal_url(url: str) -> str:
    return url.strip().rstrip("/")


def learned(masters: Iterable[str]) -> tuple[str, ...]:
    """Returns the usable URLs of an answer, without duplicates, at most MAX_LEARNED."""
    urls = dict.fromkeys(normal_url(url) for url in masters)
    return tuple(url for url in urls if url.startswith(("http://", "https://")))[:MAX_LEARNED]


def begin(masters: Iterable[str], leader: str | None, now: float, deadline: float) -> tuple[Search, AskMaster]:
    """Starts a search at the leader seen last, or otherwise at the first master of the list."""
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
    """Returns what to do after the reply of the master that was asked. `jitter` is a random number
    from 0 to 1."""
    search = _remember(search, reply)
    if now >= ends_at(search, policy):
        return search, GiveUp()
    suggested = _suggestion(search, reply)
    if suggested is not None:
        search = replace(search, followed=search.followed | {suggested})
        return _ask(search, AskMaster(suggested, followed=True))
    if reply.said is Said.NOT_READY and search.patience < policy.in_place:
        wait = _wait(search.patience, jitter, policy)
        return _ask_in_time(search, AskMaster(search.asking, wait), now, policy, search.patience + 1)
    unasked = [url for url in search.masters if url not in search.asked]
    if unasked:
        return _ask(search, AskMaster(min(unasked, key=lambda url: url in search.silent)))
    return _next_round(search, now, jitter, policy)


def ends_at(search: Search, policy: Policy = POLICY) -> float:
    """Returns the latest time at which the search can end, as far as is known now."""
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
    """Returns the leader that a refusal names, if it is a known master that was not followed in
    this round."""
    if reply.said is not Said.NOT_LEADER or reply.leader is None:
        return None
    url = normal_url(reply.leader)
    if url not in search.masters or url == search.asking or url in search.followed:
        return None
    if url in search.silent:  # It may be frozen without the others' knowledge, so ask it last.
        return None
    return url


def _ask(search: Search, ask: AskMaster, patience: int = 0) -> tuple[Search, AskMaster]:
    ask = replace(ask, silences=search.silent.get(ask.url, 0))
    asked = search.asked | {ask.url}
    named = ask.url if ask.followed else search.named
    return replace(search, asking=ask.url, asked=asked, named=named, patience=patience), ask


def _ask_in_time(
    search: Search, ask: AskMaster, now: float, policy: Policy, patience: int = 0
) -> tuple[Search, AskMaster | GiveUp]:
    if now + ask.wait >= ends_at(search, policy):
        return search, GiveUp()
    return _ask(search, ask, patience)


def _next_round(search: Search, now: float, jitter: float, policy: Policy) -> tuple[Search, AskMaster | GiveUp]:
    order = sorted(search.masters, key=lambda url: (url in search.silent, url != search.named))
    wait = _wait(search.rounds, jitter, policy)
    fresh = replace(
        search,
        asked=frozenset(),
        followed=frozenset(),
        rounds=search.rounds + 1,
        named=None,
        content=search.behind,
    )
    return _ask_in_time(fresh, AskMaster(order[0], wait), now, policy)


def _wait(times: int, jitter: float, policy: Policy) -> float:
    return pause_secs(times + 1, policy.first_wait, policy.longest_wait, jitter)
