"""The plan of what a supervisor fetches and drops."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.policies.bundle_terms import Priority
from torrentdist.supervisor.bundles.keeping_plan import (
    UNWANTED_SECS,
    Action,
    BeginSeeding,
    CancelFetch,
    DropArrival,
    DropBundle,
    FetchBundle,
    KeepingState,
    StopSeeding,
    plan,
)

A, B = BundleId("a"), BundleId("b")
DIGEST = Digest("1" * 64)
NOTHING: frozenset[BundleId] = frozenset()


def host(
    *,
    assigned: frozenset[BundleId] = NOTHING,
    requested: frozenset[BundleId] = NOTHING,
    fetching: frozenset[BundleId] = NOTHING,
    published: bool = False,
    removed: bool = False,
    not_before: Mapping[BundleId, float] | None = None,
    seed_secs: float = -1.0,
    priorities: Mapping[BundleId, Priority] | None = None,
    stuck: frozenset[BundleId] = NOTHING,
    needed: frozenset[BundleId] = NOTHING,
    limited: frozenset[BundleId] = NOTHING,
) -> KeepingState:
    return KeepingState(
        assigned=assigned,
        requested=requested,
        bindings={A: DIGEST},
        idle_secs={DIGEST: 100.0} if published else {},
        seeding=frozenset({DIGEST}) if published else frozenset(),
        fetching=fetching,
        removed=frozenset({DIGEST}) if removed else frozenset(),
        not_before=not_before or {},
        seed_secs=seed_secs,
        priorities=priorities or {},
        stuck=stuck,
        needed=needed,
        limited=limited,
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (host(assigned=frozenset({A}), requested=frozenset({B})), [FetchBundle(A), FetchBundle(B)]),
        (host(assigned=frozenset({A}), published=True), []),
        (host(assigned=frozenset({A}), fetching=frozenset({A})), []),
        (host(assigned=frozenset({A}), not_before={A: 11.0}), []),
        (host(assigned=frozenset({A}), not_before={A: 10.0}), [FetchBundle(A)]),
        (host(assigned=frozenset({A}), published=True, removed=True), [DropBundle(DIGEST), FetchBundle(A)]),
    ],
)
def test_what_is_wanted_and_not_here_is_fetched_once(given: KeepingState, expected: list[Action]) -> None:
    """A host would lack what it was told to keep, or fetch it twice."""
    assert expected == plan(given, 10.0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (host(published=True), []),
        (host(published=True, removed=True), [DropBundle(DIGEST)]),
        (host(fetching=frozenset({A}), removed=True), [DropBundle(DIGEST)]),
        (host(removed=True), []),
    ],
)
def test_only_a_tombstone_drops_what_is_here_or_arriving(given: KeepingState, expected: list[Action]) -> None:
    """Content would be lost without a removal, or a removed bundle would go on arriving."""
    assert expected == plan(given, 10.0)


def test_what_is_mounted_stays_after_its_removal() -> None:
    """A pod would lose its files while it reads them."""
    here = replace(host(published=True, removed=True), held=frozenset({DIGEST}))
    damaged = replace(host(removed=True), unwanted_secs={DIGEST: UNWANTED_SECS}, held=frozenset({DIGEST}))

    assert ([], []) == (plan(here, 10.0), plan(damaged, 10.0))
    assert [] == plan(replace(damaged, removed=frozenset(), lacks_room=True), 10.0)


def test_content_that_no_record_has_is_asked_for_again() -> None:
    """A host that was away when a bundle was removed, and its id given to another one, would run
    the old one for ever."""
    late = replace(host(assigned=frozenset({A}), published=True), unknown=frozenset({DIGEST}))

    assert [FetchBundle(A)] == plan(late, 10.0)
    assert [] == plan(replace(late, assigned=frozenset()), 10.0)


def test_seeding_ends_when_nobody_wants_it_for_long() -> None:
    """A host would seed for ever what it should seed for a while."""
    assert [StopSeeding(DIGEST)] == plan(host(published=True, seed_secs=50.0), 10.0)
    assert [] == plan(host(published=True, assigned=frozenset({A}), seed_secs=50.0), 10.0)
    assert [] == plan(host(published=True, seed_secs=500.0), 10.0)
    assert [] == plan(replace(host(published=True, seed_secs=0.5), idle_secs={}), 10.0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (host(assigned=frozenset({A}), published=True), [BeginSeeding(DIGEST)]),
        (host(requested=frozenset({A}), published=True, seed_secs=50.0), [BeginSeeding(DIGEST)]),
        (host(published=True), []),
        (host(assigned=frozenset({B}), published=True), [FetchBundle(B)]),
        (host(assigned=frozenset({A}), published=True, removed=True), [DropBundle(DIGEST), FetchBundle(A)]),
    ],
)
def test_what_is_wanted_is_seeded_again(given: KeepingState, expected: list[Action]) -> None:
    """A host that had stopped seeding would never count as done once it is told to keep it."""
    assert expected == plan(replace(given, seeding=frozenset()), 10.0)


def test_what_has_no_id_any_more_is_seeded_until_masters_say_that_it_is_removed() -> None:
    """If this fails, a bundle that was removed while it was published stays on its host for ever:
    masters say what is removed of the swarms that a host is in."""
    nameless = replace(host(published=True, seed_secs=50.0), bindings={})

    assert [BeginSeeding(DIGEST)] == plan(replace(nameless, seeding=frozenset()), 10.0)
    assert [] == plan(nameless, 10.0)
    assert [DropBundle(DIGEST)] == plan(replace(nameless, removed=frozenset({DIGEST})), 10.0)


def test_what_arrived_and_nobody_wants_goes_after_a_while_or_when_room_is_needed() -> None:
    """A fetch that failed would keep its room for ever, and the next bundle would not fit."""
    early, late = ({DIGEST: secs} for secs in (UNWANTED_SECS - 1, UNWANTED_SECS))

    assert [] == plan(replace(host(), unwanted_secs=early), 10.0)
    assert [DropArrival(DIGEST)] == plan(replace(host(), unwanted_secs=late), 10.0)
    assert [DropArrival(DIGEST)] == plan(replace(host(), unwanted_secs=early, lacks_room=True), 10.0)
    assert [[DropBundle(DIGEST)]] * 2 == [
        plan(replace(host(removed=True), unwanted_secs=secs), 10.0) for secs in (early, late)
    ]


BOTH = frozenset({A, B})
LOW = {A: Priority.LOW}
HIGH = {A: Priority.HIGH}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (host(assigned=BOTH, priorities=LOW), [FetchBundle(B)]),
        (host(assigned=BOTH, priorities=LOW, fetching=frozenset({B})), []),
        (host(assigned=BOTH, priorities={A: Priority.HIGH}, fetching=frozenset({B})), [FetchBundle(A)]),
        (host(assigned=BOTH, priorities=LOW, not_before={B: 11.0}), [FetchBundle(A)]),
        (host(assigned=BOTH, priorities=LOW, fetching=frozenset({B}), stuck=frozenset({B})), [FetchBundle(A)]),
        (host(assigned=BOTH, priorities=LOW, requested=frozenset({A}), fetching=frozenset({B})), [FetchBundle(A)]),
        (host(assigned=frozenset({A}), requested=frozenset({B}), fetching=frozenset({B})), [FetchBundle(A)]),
    ],
)
def test_a_lower_priority_waits_for_what_arrives(given: KeepingState, expected: list[Action]) -> None:
    """A nightly preheat would share the link with what a job waits for, or wait for ever behind a
    bundle that never comes."""
    assert expected == plan(given, 10.0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (host(assigned=BOTH, priorities=HIGH, fetching=frozenset({A})), []),
        (host(assigned=BOTH, priorities=HIGH, fetching=frozenset({A}), needed=frozenset({B})), [FetchBundle(B)]),
        (host(assigned=BOTH, priorities=HIGH, fetching=frozenset({A}), limited=frozenset({A})), [FetchBundle(B)]),
        (host(assigned=BOTH, priorities=HIGH, limited=frozenset({A})), [FetchBundle(A), FetchBundle(B)]),
        (host(assigned=BOTH, priorities=LOW, limited=frozenset({A})), [FetchBundle(B)]),
        (host(assigned=frozenset({A}), priorities=LOW, limited=frozenset({A})), [FetchBundle(A)]),
        (host(assigned=BOTH, priorities=LOW, fetching=frozenset({B}), needed=frozenset({B})), []),
    ],
)
def test_what_workers_need_waits_for_nothing_and_a_slow_fetch_keeps_nothing_back(
    given: KeepingState, expected: list[Action]
) -> None:
    """A distribution of a high priority and a low rate would keep a job from starting for hours, on
    every host; or a nightly preheat would share the link with what a job waits for."""
    assert expected == plan(given, 10.0)


def test_a_fetch_that_nobody_wants_any_more_is_given_up() -> None:
    """A cancelled distribution would go on loading holders and disks."""
    assert [CancelFetch(A)] == plan(host(fetching=frozenset({A})), 10.0)
    assert [] == plan(host(assigned=frozenset({A}), fetching=frozenset({A})), 10.0)
