"""In every queue at most one candidate is first, and each other one waits for exactly one living
predecessor."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torrentdist.cluster.election.term import (
    First,
    Ghost,
    MustQueue,
    OwnNode,
    Waits,
    lease_end,
    outdated,
    queue,
    standing,
)

NUMBERS = st.integers(min_value=0, max_value=9_999_999_999)
UNIQUES = st.text("0123456789abcdef", min_size=16, max_size=16)
NAMES = st.builds(lambda unique, number: f"{unique}-{number:010}", UNIQUES, NUMBERS)
QUEUES = st.lists(NAMES, max_size=12, unique_by=lambda name: name[-10:])
JUNK = st.lists(st.text(max_size=12).filter(lambda t: not t[-10:].isdigit() or len(t) <= 10), max_size=4)


@given(QUEUES, JUNK, st.randoms(use_true_random=False))
def test_exactly_one_is_first_and_the_others_form_a_chain(names: list[str], junk: list[str], random: object) -> None:
    """If this fails, two candidates lead, or a candidate waits for nobody and never leads."""
    children = names + junk
    getattr(random, "shuffle")(children)  # noqa: B009  # hypothesis hands out an untyped Random
    standings = {name: standing(children, OwnNode(name, 1), 1) for name in names}
    firsts = [name for name, s in standings.items() if isinstance(s, First)]
    waits = {s.predecessor for s in standings.values() if isinstance(s, Waits)}

    assert len(firsts) == min(1, len(names))
    assert waits == set(queue(names)[:-1])
    assert all(int(s.predecessor[-10:]) < int(n[-10:]) for n, s in standings.items() if isinstance(s, Waits))


@given(QUEUES, NAMES, st.integers(1, 3), st.integers(1, 3) | st.none())
def test_nobody_is_first_by_a_znode_that_is_not_theirs(
    names: list[str], own: str, owner: int, session: int | None
) -> None:
    """If this fails, a master believes that it leads by a znode that is gone, or of a session that
    is over."""
    result = standing(names, OwnNode(own, owner), session)

    if own not in names:
        assert result == MustQueue()
    elif owner != session:
        assert result == Ghost(own)
    else:
        assert isinstance(result, First | Waits)


@given(QUEUES.filter(lambda names: len(names) > 1))
def test_when_the_first_goes_the_next_leads_and_only_that_one_was_waiting_for_it(names: list[str]) -> None:
    """If this fails, a leader's death wakes every standby, or none."""
    first, second, *_ = queue(names)
    waiting = [n for n in names if standing(names, OwnNode(n, 1), 1) == Waits(first)]
    after = [n for n in names if n != first]

    assert waiting == [second]
    assert standing(after, OwnNode(second, 1), 1) == First(second)


TIMES = st.floats(0, 1e6)


@given(TIMES, st.floats(1.0, 60.0), st.floats(0, 1))
def test_a_lease_is_over_before_zookeeper_may_forget_the_session(sent: float, timeout: float, share: float) -> None:
    """If this fails, two masters may act at once.

    The model: ZooKeeper's leader may have heard of the session last one keep-alive before the write
    was sent, and drops it a negotiated timeout later.
    """
    last_heard = sent - share * timeout / 3

    assert sent < lease_end(sent, timeout) <= last_heard + timeout + 1e-6


@given(QUEUES, st.integers(0, 12))
def test_history_keeps_the_newest(names: list[str], keep: int) -> None:
    """If this fails, recent failovers are forgotten."""
    gone = outdated(names, keep)

    assert len(names) - len(gone) == min(len(names), keep)
    assert queue(names)[: len(gone)] == gone
