"""What every schedule of `make chaos` guarantees, whatever its seed."""

from __future__ import annotations

import itertools
from itertools import product
from typing import get_args

from chaos.schedule import (
    CI_SECS,
    CI_SEED,
    DISK,
    REST_SECS,
    SESSION_SECS,
    Cut,
    Direction,
    Drops,
    Event,
    Expire,
    Fault,
    Others,
    Part,
    Pause,
    Way,
    schedule,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from property_size import examples

seeds = st.integers(0, 2**32 - 1)
lengths = st.sampled_from([30.0, 90.0, 300.0])


def servers_away(events: list[Event]) -> list[Event]:
    return [event for event in events if event.fault.target.startswith("zookeeper")]


@settings(max_examples=examples(50))
@given(seeds, lengths)
def test_a_seed_gives_one_schedule(seed: int, seconds: float) -> None:
    """If this failed, a run that found something could not be repeated."""
    assert schedule(seed, seconds) == schedule(seed, seconds)


@settings(max_examples=examples(50))
@given(seeds, lengths)
def test_everything_is_whole_again_in_the_end(seed: int, seconds: float) -> None:
    """If this failed, a fault would outlive the run, and the verdict would judge a broken
    system."""
    events = schedule(seed, seconds)

    assert events == sorted(events, key=lambda event: event.at)
    assert all(0 < event.at and event.until < seconds for event in events)


@settings(max_examples=examples(50))
@given(seeds, lengths)
def test_one_disk_is_damaged_at_a_time(seed: int, seconds: float) -> None:
    """If this failed, two copies of a bundle could go at once, and its loss would prove nothing."""
    disks = [event for event in schedule(seed, seconds) if isinstance(event.fault, DISK)]

    assert all(later.at >= earlier.until + REST_SECS for earlier, later in itertools.pairwise(disks))


@settings(max_examples=examples(50))
@given(seeds, lengths)
def test_a_quorum_of_zookeeper_comes_back(seed: int, seconds: float) -> None:
    """If this failed, ZooKeeper would be gone for so long that a run shows nothing but refusals."""
    away = servers_away(schedule(seed, seconds))
    at_once = [[other for other in away if other.at <= event.at < other.until] for event in away]

    assert all(len(servers) <= 2 for servers in at_once)


@settings(max_examples=examples(50))
@given(seeds, lengths)
def test_no_target_has_two_faults_at_once(seed: int, seconds: float) -> None:
    """If this failed, the end of one fault would also end another that is meant to last."""
    events = schedule(seed, seconds)
    daemons = [event for event in events if event not in servers_away(events)]

    assert not [
        (one, other)
        for one in daemons
        for other in daemons
        if one is not other and one.fault.target == other.fault.target and one.at <= other.at <= one.until
    ]


def test_ci_tries_every_kind_of_fault() -> None:
    """If this failed, a change could break the handling of a fault, and CI would not notice."""
    faults = [event.fault for event in schedule(CI_SEED, CI_SECS)]

    assert set(map(type, faults)) == set(get_args(Fault))
    assert {fault.way for fault in faults if isinstance(fault, Cut)} == set(Way)
    assert {fault.direction for fault in faults if isinstance(fault, Part)} == set(Direction)


def test_every_kind_of_fault_comes_up() -> None:
    """If this failed, a kind of fault that we claim to survive would never be tried."""
    faults = [event.fault for event in schedule(1, 3600.0)]
    pauses = [fault.secs > SESSION_SECS for fault in faults if isinstance(fault, Pause)]

    assert set(map(type, faults)) == set(get_args(Fault))
    assert {True, False} == set(pauses)
    assert {fault.way for fault in faults if isinstance(fault, Cut)} == set(Way)
    assert {(f.others, f.direction) for f in faults if isinstance(f, Part)} == set(product(Others, Direction))
    assert {"leader", "zookeeper-leader"} < {fault.target for fault in faults}
    assert any(isinstance(fault, Drops | Expire) and fault.target == "leader" for fault in faults)
