"""Retention decides correctly whatever the store holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.bundle.store.retention import (
    IDLE_SECS,
    Entry,
    KeepReason,
    StoreMarks,
    claim_everything,
    plan,
    plan_prune,
    plan_to_low,
    reasons_to_stay,
    room_for,
    why_full,
)
from torrentdist.bundle.store.store_values import StoreUsage
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


@pytest.mark.parametrize(("need", "going"), [(-1, []), (0, []), (1, ["a"]), (2, ["a", "b"]), (3, None)])
def test_a_single_byte_that_is_needed_is_made_room_for(need: int, going: list[str] | None) -> None:
    """A fetch would fail for lack of its last byte, or a bundle would go for nothing."""
    held = [Entry(Digest("b"), 1, 2.0), Entry(Digest("a"), 1, 1.0)]

    assert going == plan(held, need=need)


def test_a_mark_counts_from_its_byte_and_its_second() -> None:
    """A store would be above its mark for ever, or lose a bundle that somebody reads."""
    marks, old = StoreMarks(high=10, low=8), Entry(Digest("a"), 2, 0.0)

    assert [] == plan_to_low([old], used=10, marks=marks, now=IDLE_SECS)
    assert ["a"] == plan_to_low([old], used=11, marks=marks, now=IDLE_SECS)
    assert [] == plan_to_low([old], used=11, marks=marks, now=IDLE_SECS - 0.1)
    assert [] == plan_to_low([old], used=11, marks=StoreMarks(), now=IDLE_SECS)
    assert ["a"] == plan_to_low([old], used=11, marks=StoreMarks(high=10), now=IDLE_SECS)
    assert [] == plan_to_low([Entry(Digest("a"), 0, 0.0)], used=11, marks=marks, now=IDLE_SECS)


def test_no_bundle_goes_beside_one_that_is_enough() -> None:
    """A store would remove small bundles that were idle for longest, and then a large one too."""
    held = [Entry(Digest("a"), 1, 0.0), Entry(Digest("b"), 5, 595.0)]

    assert ["b"] == plan_to_low(held, used=15, marks=StoreMarks(high=12, low=10), now=1200.0)
    assert ["b", "a"] == plan_to_low(held, used=16, marks=StoreMarks(high=12, low=10), now=1300.0)
    late = [Entry(Digest("a"), 1, 0.0), Entry(Digest("c"), 1, 1.0), Entry(Digest("b"), 5, 1e6 - 1000)]
    assert ["b"] == plan_to_low(late, used=15, marks=StoreMarks(high=12, low=10), now=1e6)
    assert ["a", "b"] == plan_to_low(late, used=16, marks=StoreMarks(high=12, low=10), now=1e6)


def test_a_bundle_is_idle_since_its_last_use() -> None:
    """The bundle that was used last would go first."""
    held = [Entry(Digest("a"), 5, 0.0), Entry(Digest("b"), 6, 300.0)]

    assert ["a"] == plan_to_low(held, used=15, marks=StoreMarks(high=12, low=10), now=1000.0)


def test_no_more_bundles_stay_than_there_is_room_for() -> None:
    """A fetch would fail, because too many bundles were spared."""
    held = [Entry(Digest(name), size, used) for name, size, used in (("a", 5, 1.0), ("b", 5, 2.0), ("c", 9, 3.0))]

    assert ["a", "c"] == plan(held, need=12)


def usage(published: int, arriving: int, free: int, limit: int = 0) -> StoreUsage:
    return StoreUsage(1, published, 1, arriving, limit_bytes=limit, reserve_bytes=100, free_bytes=free)


@pytest.mark.parametrize(
    ("used", "marks", "room"),
    [
        (usage(50, 0, 1000), StoreMarks(), 900),
        (usage(50, 7, 1000), StoreMarks(), 893),
        (usage(50, 7, 1000, limit=60), StoreMarks(), 3),
        (usage(50, 7, 1000, limit=60), StoreMarks(high=58), 1),
        (usage(50, 7, 1000), StoreMarks(high=58), 1),
        (usage(50, 8, 1000), StoreMarks(high=58), 0),
        (usage(50, 9, 1000), StoreMarks(high=58), 0),
        (usage(50, 0, 90), StoreMarks(), 0),
    ],
)
def test_the_room_of_a_store_is_its_smallest_one(used: StoreUsage, marks: StoreMarks, room: int) -> None:
    """A master would promise room that its disk, its limit or its mark does not have."""
    assert room == room_for(used, marks, used.published_bytes)


@pytest.mark.parametrize(
    ("used", "marks", "said"),
    [
        (usage(6, 4, 101), StoreMarks(high=10), ""),
        (usage(6, 5, 101), StoreMarks(high=10), "its bundles take more than store.high"),
        (usage(6, 5, 101), StoreMarks(), ""),
        (usage(6, 4, 100), StoreMarks(high=10), "no more than store.reserve_bytes is free on its disk"),
    ],
)
def test_a_full_store_says_why(used: StoreUsage, marks: StoreMarks, said: str) -> None:
    """A master would take uploads that it has no room for, or none although it has room."""
    assert said == why_full(used, marks, used.published_bytes)


def test_what_a_prune_leaves_says_why() -> None:
    """An operator could not tell why a prune frees nothing."""
    held = [
        Entry(Digest("a"), 1, 10.0, frozenset({KeepReason.PINNED})),
        Entry(Digest("b"), 1, 10.0),
        Entry(Digest("c"), 1, 5.0),
        Entry(Digest("d"), 1, 11.0, frozenset({KeepReason.IN_USE})),
    ]

    assert {
        "a": {KeepReason.PINNED},
        "d": {KeepReason.IN_USE, KeepReason.USED_LATELY},
    } == reasons_to_stay(held, older_than=10.0, now=20.0)
    assert ["c", "b"] == plan_prune(held, older_than=10.0, now=20.0)


def test_who_knows_nothing_claims_every_bundle() -> None:
    """A caller without knowledge would delete what is in use."""
    assert {KeepReason.IN_USE} == claim_everything(Digest("a"))
