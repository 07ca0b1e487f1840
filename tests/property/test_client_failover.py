"""The search for the leader in simulated clusters: it ends, it finds the leader, and it floods no
master."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from torrentdist.client.masters.leader_search import POLICY, AskMaster, GiveUp, Reply, Said, begin, step

URLS = [f"http://m{n}:7060" for n in range(5)]
LATENCY = 0.01
DEADLINE = 30.0


@dataclass
class Run:
    """The record of a simulated search."""

    asks: list[AskMaster] = field(default_factory=list)
    ended_at: float = 0.0
    found: str | None = None


replies = st.builds(
    Reply,
    said=st.sampled_from(Said),
    detail=st.just("x"),
    leader=st.none() | st.sampled_from([*URLS, "http://stranger:1"]),
    masters=st.lists(st.sampled_from(URLS), max_size=5).map(tuple),
)


def search(
    known: list[str], first: str | None, answer: dict[str, list[Reply]], leader: str | None, jitter: float
) -> Run:
    """Runs a search. Each master gives its replies in turn, over and over; the leader, if any,
    accepts the request."""
    run, now, told = Run(), 0.0, dict.fromkeys(URLS, 0)
    state, action = begin(known, first, 0.0, DEADLINE)
    after: AskMaster | GiveUp = action
    while isinstance(after, AskMaster):
        run.asks.append(after)
        now += after.wait + LATENCY
        if after.url == leader:
            run.found = leader
            break
        script = answer.get(after.url) or [Reply(Said.NOTHING, "refused")]
        reply = script[told[after.url] % len(script)] if after.url in told else script[0]
        told[after.url] = told.get(after.url, 0) + 1
        state, after = step(state, reply, now, jitter)
    run.ended_at = now
    return run


scripts = st.dictionaries(st.sampled_from(URLS), st.lists(replies, min_size=1, max_size=4))
known_masters = st.lists(st.sampled_from(URLS), min_size=1, max_size=5, unique=True)
jitters = st.floats(0, 1, exclude_max=True)


@given(known_masters, st.none() | st.sampled_from(URLS), scripts, jitters)
def test_ends_by_the_deadline(
    known: list[str], first: str | None, answer: dict[str, list[Reply]], jitter: float
) -> None:
    """B4: if this failed, a client would hang for ever, or hammer the masters without end."""
    run = search(known, first, answer, None, jitter)

    assert run.ended_at <= DEADLINE + LATENCY
    assert len(run.asks) < 10_000


@given(known_masters, st.none() | st.sampled_from(URLS), scripts, jitters)
def test_asks_nobody_twice_in_a_round_without_a_wait(
    known: list[str], first: str | None, answer: dict[str, list[Reply]], jitter: float
) -> None:
    """B3: if this failed, a cluster without a leader would be flooded by its clients."""
    rounds: list[list[AskMaster]] = [[]]
    for ask in search(known, first, answer, None, jitter).asks:
        if ask.wait:
            rounds.append([])
        rounds[-1].append(ask)

    for visited in rounds:
        unprompted = [ask.url for ask in visited if not ask.followed]
        followed = [ask.url for ask in visited if ask.followed]
        assert len(unprompted) == len(set(unprompted))
        assert len(followed) == len(set(followed))


@given(known_masters, st.sampled_from(URLS), scripts, jitters, st.data())
def test_finds_a_stable_leader_from_any_start(
    known: list[str], leader: str, answer: dict[str, list[Reply]], jitter: float, data: st.DataObject
) -> None:
    """B5, B6, B9: if this failed, a client would give up although it could reach a leader, or a
    master that names one."""
    if leader not in known:
        guide = data.draw(st.sampled_from(known))
        answer = {**answer, guide: [Reply(Said.NOT_LEADER, "not me", leader=leader, masters=(leader,))]}
    run = search(known, data.draw(st.none() | st.sampled_from(URLS)), answer, leader, jitter)

    assert leader == run.found


@given(jitters)
def test_waits_grow_to_the_cut_off(jitter: float) -> None:
    """B3: if this failed, a waiting client would either flood the cluster or notice a new leader
    too late."""
    run = search([URLS[0]], None, {URLS[0]: [Reply(Said.UNABLE, "no leader")]}, None, jitter)
    waits = [ask.wait for ask in run.asks[1:]]

    assert waits == sorted(waits)
    assert max(waits) <= POLICY.longest_wait


@given(known_masters, jitters)
def test_absence_ends_a_search_early(known: list[str], jitter: float) -> None:
    """B4: if this failed, a command without a cluster would try until its whole deadline is
    over."""
    run = search(known, None, {}, None, jitter)

    assert run.ended_at <= POLICY.absent_secs + LATENCY * len(known)
    assert run.ended_at >= POLICY.absent_secs - POLICY.longest_wait - LATENCY * len(known)


@given(known_masters, st.sampled_from([Said.SILENT, Said.UNABLE, Said.BEHIND]), jitters)
def test_who_is_there_is_asked_until_the_deadline(known: list[str], said: Said, jitter: float) -> None:
    """If this fails, an upload gives up after seconds, although it promises to wait for
    client.deadline_secs."""
    run = search(known, None, {url: [Reply(said, "x")] for url in known}, None, jitter)

    assert run.ended_at >= DEADLINE - POLICY.longest_wait


@given(jitters)
def test_a_frozen_leader_is_asked_last_and_given_little_time(jitter: float) -> None:
    """If this fails, each round costs the whole patience, because the other masters still name a
    frozen leader."""
    frozen, *others = URLS[:3]
    names = Reply(Said.NOT_LEADER, "not me", leader=frozen)
    run = search(URLS[:3], frozen, {frozen: [Reply(Said.SILENT, "x")], **{u: [names] for u in others}}, None, jitter)
    asked = [ask.url for ask in run.asks]

    assert [frozen, *others, *others, frozen, *others, frozen] == asked[:9]
    assert [0, 1, 2] == [ask.silences for ask in run.asks if ask.url == frozen][:3]
