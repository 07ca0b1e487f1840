"""Retention decides correctly whatever the store holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torrentdist.bundle.store.retention import (
    IDLE_SECS,
    Entry,
    KeepReason,
    StoreMarks,
    plan,
    plan_prune,
    plan_to_low,
)
from torrentdist.model.ids import Digest

entries = st.lists(
    st.builds(
        Entry,
        digest=st.integers(0, 2**256 - 1).map(lambda n: Digest(f"{n:064x}")),
        size=st.integers(0, 50),
        used_at=st.integers(0, 10).map(float),
        claims=st.frozensets(st.sampled_from(KeepReason), max_size=2) | st.just(frozenset()),
    ),
    unique_by=lambda entry: entry.digest,
    max_size=12,
)
needs = st.integers(-5, 250)


def chosen(held: list[Entry], need: int) -> list[Entry] | None:
    digests = plan(held, need=need)
    by_digest = {entry.digest: entry for entry in held}
    return None if digests is None else [by_digest[digest] for digest in digests]


@given(entries, needs)
def test_claimed_bundles_are_never_evicted(held: list[Entry], need: int) -> None:
    """A pinned bundle, one in use, or the last copy in the cluster could be deleted for room."""
    claimed = [entry for entry in chosen(held, need) or [] if entry.claims]

    assert claimed == []


@given(entries, needs)
def test_enough_is_freed_or_nothing_goes(held: list[Entry], need: int) -> None:
    """Bundles could be deleted for a fetch that then still fails for lack of room."""
    evicted = chosen(held, need)
    possible = sum(entry.size for entry in held if not entry.claims)

    assert (need > 0 and possible < need) == (evicted is None)
    assert evicted is None or sum(entry.size for entry in evicted) >= need


@given(entries, needs)
def test_no_eviction_is_superfluous(held: list[Entry], need: int) -> None:
    """A bundle could be deleted although there would have been enough room without that."""
    evicted = chosen(held, need) or []
    freed = sum(entry.size for entry in evicted)

    assert [entry for entry in evicted if freed - entry.size >= need] == []


@given(entries, needs)
def test_what_was_used_last_goes_last(held: list[Entry], need: int) -> None:
    """A bundle could be evicted although older unused ones would have made the room."""
    evicted = chosen(held, need) or []
    for last in evicted:
        longer_unused = [e for e in held if not e.claims and (e.used_at, e.digest) < (last.used_at, last.digest)]

        assert sum(entry.size for entry in longer_unused) < need
    assert sorted(evicted, key=lambda entry: entry.used_at) == evicted


@given(entries, st.floats(0, 12), st.floats(0, 12))
def test_prune_removes_exactly_what_is_old_and_unclaimed(held: list[Entry], older_than: float, now: float) -> None:
    """Pruning could remove a bundle that is needed, or leave one that nobody needs."""
    expected = {entry.digest for entry in held if not entry.claims and now - entry.used_at >= older_than}

    assert expected == set(plan_prune(held, older_than=older_than, now=now))


def test_a_small_old_bundle_stays_when_a_big_one_must_go_anyway() -> None:
    """Evicting in order of use alone would delete small bundles for nothing."""
    small, big = (Entry(Digest(c * 64), size, used) for c, size, used in (("a", 1, 1.0), ("b", 100, 2.0)))

    assert [big.digest] == plan([small, big], need=100)


def test_what_frees_exactly_enough_is_enough() -> None:
    """A fetch would fail for lack of room although one bundle's room is all that it needs."""
    entry = Entry(Digest("a" * 64), 100, 1.0)

    assert [entry.digest] == plan([entry], need=100)


marks = st.tuples(st.integers(0, 200), st.integers(0, 200)).map(lambda pair: StoreMarks(max(pair), min(pair)))
NOW = IDLE_SECS + 5.0
"""Bundles of `entries` that were used at 5 or before are idle by then."""


@given(entries, marks, st.integers(0, 100))
def test_a_mark_removes_only_what_is_idle_and_unclaimed(held: list[Entry], mark: StoreMarks, arriving: int) -> None:
    """A pinned bundle, one in use, or the last copy would go because a store is full."""
    used = arriving + sum(entry.size for entry in held)
    going = {*plan_to_low(held, used=used, marks=mark, now=NOW)}

    assert [] == [e for e in held if e.digest in going and (e.claims or NOW - e.used_at < IDLE_SECS)]
    assert not going or (mark.high and used > mark.high)


@given(entries, marks, st.integers(0, 100))
def test_a_mark_frees_enough_and_no_more(held: list[Entry], mark: StoreMarks, arriving: int) -> None:
    """A store would stay above its mark although bundles could go, or lose bundles for nothing."""
    used = arriving + sum(entry.size for entry in held)
    going = [e for d in plan_to_low(held, used=used, marks=mark, now=NOW) for e in held if e.digest == d]
    left, low = used - sum(entry.size for entry in going), mark.low or mark.high
    may_go = [e for e in held if not e.claims and NOW - e.used_at >= IDLE_SECS and e.size]

    if mark.high and used > mark.high:
        assert left <= low or len(going) == len(may_go)
        assert [] == [entry for entry in going if left + entry.size <= low]


def test_a_large_bundle_that_is_idle_for_long_goes_first() -> None:
    """Many small bundles would go where one large one is enough."""
    sizes = [("a", 5, 0.0), ("b", 80, 3.0), ("c", 5, 1.0)]
    held = [Entry(Digest(c * 64), size, used) for c, size, used in sizes]

    assert ["b" * 64] == plan_to_low(held, used=90, marks=StoreMarks(60, 50), now=NOW + 60)
