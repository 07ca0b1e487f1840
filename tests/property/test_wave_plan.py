"""Distributions in waves: who is told when, and what stops the rest."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from property_size import examples
from records_of import snapshot

from torrentdist.cluster.records.snapshot import PresenceEntry
from torrentdist.master.policies.wave_plan import (
    AwaitHosts,
    EndDistribution,
    HostOutcome,
    HostProgressClock,
    TellHosts,
    WaveStep,
    current_wave,
    newcomers,
    next_step,
    waits_since,
    waves,
)
from torrentdist.model.access.host_record import PresenceRecord
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState
from torrentdist.model.wire.fleet_messages import HostProgress, HostState

PATIENCE = 30.0
LONG = 10_000.0


def record(hosts: int, **how: int | bool) -> DistributionRecord:
    names = tuple(SupervisorId(f"h{n:02}") for n in range(hosts))
    return DistributionRecord(bundle=BundleId("etl"), hosts=names, **how)  # type: ignore[arg-type]


def outcome(state: HostState) -> HostOutcome:
    return HostOutcome(state, LONG, "its disk is full" if state is HostState.STUCK else "")


def play(
    order: DistributionRecord,
    ends: Mapping[SupervisorId, HostState],
    later: Mapping[SupervisorId, HostState] = MappingProxyType({}),
) -> tuple[list[set[str]], EndDistribution]:
    """Plays a distribution in which each host ends as given. Returns the hosts told in each step,
    and the end. `later`: what became of hosts after they had got the bundle."""
    told: set[SupervisorId] = set()
    steps: list[set[str]] = []
    seen = {host: outcome(state) for host, state in ends.items()}
    seen |= {host: replace(outcome(state), had_it=True) for host, state in later.items()}
    for _ in range(2 * len(order.hosts) + 3):
        step = next_step(order, told, {host: seen[host] for host in told}, PATIENCE)
        match step:
            case TellHosts(hosts):
                assert not told & set(hosts)
                waiting = {host: HostOutcome(HostState.FETCHING) for host in hosts}
                done = {host: seen[host] for host in told}
                told |= set(hosts)
                steps.append({*hosts})
                assert AwaitHosts() == next_step(order, told, {**done, **waiting}, PATIENCE)
            case EndDistribution():
                return steps, step
            case AwaitHosts():
                pytest.fail("it waits for hosts that have all ended")
    pytest.fail("it does not end")


ENDS = st.sampled_from([HostState.DONE, HostState.DONE, HostState.DONE, HostState.STUCK, HostState.GONE])


@settings(max_examples=examples(300))
@given(st.integers(1, 12), st.integers(0, 4), st.integers(0, 5), st.data())
def test_a_wave_begins_when_the_one_before_is_complete(hosts: int, canary: int, size: int, data: st.DataObject) -> None:
    """If this fails, hosts behind a wave fetch before it is complete, a host is never told, or a
    broken canary stops nobody."""
    order = record(hosts, canary=canary, concurrency=size)
    ends = {host: data.draw(ENDS) for host in order.hosts}
    steps, end = play(order, ends)
    planned = [set(wave) for wave in waves(order)]

    assert planned[: len(steps)] == steps
    assert order.hosts == tuple(host for wave in waves(order) for host in wave)
    broken = canary and any(ends[host] is not HostState.DONE for host in order.hosts[:canary])
    if broken:
        assert (1, DistributionState.STOPPED) == (len(steps), end.state)
    elif end.state is DistributionState.STOPPED:
        assert all(ends[host] is not HostState.DONE for host in waves(order)[len(steps) - 1])
        assert len(steps) < len(planned)
    else:
        assert (len(planned), DistributionState.COMPLETE) == (len(steps), end.state)


@settings(max_examples=examples(300))
@given(st.integers(1, 12), st.integers(0, 4), st.integers(0, 5), st.data())
def test_a_restart_of_a_host_that_got_it_changes_nothing(
    hosts: int, canary: int, size: int, data: st.DataObject
) -> None:
    """If this fails, a host that restarts while the waves behind it fetch stops them all."""
    order = record(hosts, canary=canary, concurrency=size)
    ends = {host: data.draw(ENDS) for host in order.hosts}
    states = st.sampled_from([HostState.GONE, HostState.WAITING, HostState.STUCK, HostState.FETCHING])
    later = {host: data.draw(states) for host, end in ends.items() if end is HostState.DONE}
    (before, end), (after, other) = play(order, ends), play(order, ends, later)

    assert (before, end.state) == (after, other.state)


def test_a_canary_that_fails_says_who_and_why() -> None:
    """If this fails, an operator learns that something stopped, and has to search for the host."""
    order = record(5, canary=2)
    ends = dict.fromkeys(order.hosts, HostState.DONE) | {SupervisorId("h01"): HostState.STUCK}
    steps, end = play(order, ends)

    assert [{"h00", "h01"}] == steps
    assert "a canary failed: h01 (its disk is full)" == end.reason


def test_a_host_that_makes_progress_is_never_broken() -> None:
    """If this fails, a large bundle stops its own distribution because it takes long."""
    order = record(2, canary=1)
    told = {order.hosts[0]}

    assert AwaitHosts() == next_step(order, told, {order.hosts[0]: HostOutcome(HostState.FETCHING, LONG)}, PATIENCE)
    assert AwaitHosts() == next_step(order, told, {order.hosts[0]: HostOutcome(HostState.STUCK, 1.0)}, PATIENCE)


LOOKS = st.lists(st.tuples(st.sampled_from(list(HostState)), st.integers(0, 3), st.integers(0, 20)), max_size=30)


WELL = (HostState.WAITING, HostState.FETCHING, HostState.DONE)


@settings(max_examples=examples(300))
@given(st.sampled_from(list(HostState)), LOOKS)
def test_only_time_in_which_something_is_wrong_adds_up(
    first: HostState, looks: list[tuple[HostState, int, int]]
) -> None:
    """If this fails, a canary whose fetch fails and begins again for ever never stops the others,
    or one that waited or fetched for long counts as broken as soon as it is away."""
    now, well, most, wrong, had_it = 0.0, 0.0, 0, 0.0, False
    clock = HostProgressClock(first, since=now, entered=now)
    for state, done, secs in looks:
        was_well, stays = clock.state in WELL, clock.state is state
        now, well, wrong = now + secs, (well + secs) * (was_well and stays), wrong + secs * (not was_well)
        if state is HostState.DONE or done > most:
            well = wrong = 0.0
        clock, most, had_it = clock.seen(state, done, now), max(most, done), had_it or state is HostState.DONE

        told = clock.outcome(now, "")
        assert told.had_it is had_it
        assert told.secs == wrong + well or told.done
        assert clock is clock.seen(state, done, now + 1)  # a look without news costs nothing


def test_a_canary_that_restarts_while_it_verifies_stops_nobody() -> None:
    """If this fails, a large bundle stops its own distribution, because its canary wrote and
    verified for longer than the patience with it and was away for a moment."""
    order = record(2, canary=1)
    told, step = order.hosts[0], AwaitHosts()
    clock = HostProgressClock(HostState.FETCHING, since=0.0, entered=0.0)
    looks = ((HostState.FETCHING, 100.0), (HostState.GONE, 140.0), (HostState.WAITING, 142.0), (HostState.GONE, 144.0))
    for state, now in looks:
        clock = clock.seen(state, 5, now)
        assert step == next_step(order, {told}, {told: clock.outcome(now, "")}, PATIENCE)


def test_a_canary_whose_fetch_begins_again_and_again_stops_the_others() -> None:
    """If this fails, a canary with a full disk holds up a distribution for ever: its fetch begins
    again before it counts as broken."""
    order = record(2, canary=1)
    told, now = order.hosts[0], 0.0
    clock = HostProgressClock(HostState.FETCHING, since=now, entered=now, most=5)
    step: WaveStep = AwaitHosts()
    while now <= 2 * PATIENCE + 1:
        for state, done in ((HostState.FETCHING, 4), (HostState.STUCK, 5)):
            now += 1.0
            clock = clock.seen(state, done, now)
            step = next_step(order, {told}, {told: clock.outcome(now, "its disk is full")}, PATIENCE)

    assert EndDistribution(DistributionState.STOPPED, f"a canary failed: {told} (its disk is full)") == step


def test_a_host_that_fetches_other_bundles_first_stops_nothing() -> None:
    """If this fails, a bundle of a higher priority stops every distribution that it overtakes."""
    order = record(3, canary=1, concurrency=1)
    first, second, third = order.hosts
    waits, done, gone = outcome(HostState.WAITING), outcome(HostState.DONE), outcome(HostState.GONE)
    pair = record(3, concurrency=2)

    assert AwaitHosts() == next_step(order, {first}, {first: waits}, PATIENCE)
    assert AwaitHosts() == next_step(record(1, canary=1), {first}, {first: waits}, PATIENCE)
    assert AwaitHosts() == next_step(order, {first, second}, {first: done, second: waits}, PATIENCE)
    assert AwaitHosts() == next_step(pair, {first, second}, {first: gone, second: waits}, PATIENCE)
    assert TellHosts((third,)) == next_step(pair, {first, second}, {first: done, second: waits}, PATIENCE)


def test_hosts_that_left_take_no_place_in_a_standing_order() -> None:
    """If this fails, a standing order tells nobody any more after as many hosts have left as may
    fetch at a time."""
    new = outcome(HostState.GONE), HostOutcome(HostState.GONE, 1.0), outcome(HostState.FETCHING)

    assert [False, True, True] == [host.pending(PATIENCE) for host in new]
    assert not outcome(HostState.DONE).pending(PATIENCE)


def test_a_standing_order_tells_newcomers() -> None:
    """If this fails, a host that registers later never gets what every host should have, or all
    newcomers load the holders at once."""
    order = record(1, everywhere=True, concurrency=2)
    steps, end = play(order, dict.fromkeys(order.hosts, HostState.DONE))
    new = [SupervisorId(name) for name in ("h00", "n1", "n2", "n3")]

    assert DistributionState.STANDING == end.state
    assert ("n1",) == newcomers(order, new, {order.hosts[0]}, pending=1)
    assert ("n1", "n2") == newcomers(order, new, {order.hosts[0]}, pending=0)
    assert () == newcomers(order, new, {order.hosts[0]}, pending=2)
    assert steps


def test_only_the_last_wave_waits_long() -> None:
    """If this fails, a broken host holds up the waves behind it, or a distribution ends while its
    last host is still likely to get the bundle."""
    first, second = record(2, concurrency=1).hosts
    late = {first: HostOutcome(HostState.DONE), second: HostOutcome(HostState.STUCK, 19 * PATIENCE)}
    very_late = {**late, second: HostOutcome(HostState.STUCK, 20 * PATIENCE)}
    stuck = {first: HostOutcome(HostState.STUCK, PATIENCE)}

    assert AwaitHosts() == next_step(record(2, concurrency=1), {first, second}, late, PATIENCE)
    assert isinstance(next_step(record(2, concurrency=1), {first, second}, very_late, PATIENCE), EndDistribution)
    assert isinstance(next_step(record(2, concurrency=1), {first}, stuck, PATIENCE), EndDistribution)
    assert isinstance(next_step(record(1, canary=1), {first}, stuck, PATIENCE), EndDistribution)
    waits = {first: outcome(HostState.WAITING)}
    assert isinstance(next_step(record(1), {first}, waits, PATIENCE), EndDistribution)


def test_a_host_of_which_nothing_is_known_is_waited_for() -> None:
    """If this fails, a wave counts as complete before its hosts have said anything."""
    first, second = record(2).hosts
    assert AwaitHosts() == next_step(record(2), {first, second}, {first: HostOutcome(HostState.DONE)}, PATIENCE)
    end = next_step(record(2), {first, second}, dict.fromkeys((first, second), HostOutcome(HostState.DONE)), PATIENCE)
    assert EndDistribution(DistributionState.COMPLETE) == end


def test_the_end_names_who_lacks_it() -> None:
    """If this fails, an order is called complete, and nobody learns which hosts lack the bundle."""
    hosts = record(8).hosts
    ends = {host: outcome(HostState.STUCK if n else HostState.DONE) for n, host in enumerate(hosts)}
    end = next_step(record(8), hosts, ends, PATIENCE / LONG)

    assert isinstance(end, EndDistribution)
    assert end.reason.startswith("these hosts lack it: h01 (its disk is full), h02")
    assert end.reason.endswith("h05 (its disk is full) and 2 more")


def test_the_number_of_the_wave_is_that_of_the_last_host_told() -> None:
    """If this fails, a page says "wave 1 of 3" until the end."""
    order = record(5, canary=1, concurrency=2)

    assert [0, 1, 2, 2, 3, 3] == [current_wave(order, order.hosts[:n]) for n in range(6)]


def test_zookeeper_tells_since_when_a_host_gets_nowhere() -> None:
    """If this fails, each new leader is patient anew, or gives up a host that was at work."""
    gone, stuck = SupervisorId("gone"), SupervisorId("stuck")
    seen = snapshot(assigned={"stuck": ["etl"], "gone": ["etl"]}, known=[PresenceRecord(id="gone", absent_at=7.0)])
    seen = replace(seen, assignments={id_: replace(entry, mtime=5.0) for id_, entry in seen.assignments.items()})

    def since(host: SupervisorId, state: HostState, bundle: str = "etl", done: int = 0) -> float | None:
        return waits_since(seen, HostProgress(supervisor=host, state=state, done=done), BundleId(bundle))

    assert 7.0 == since(gone, HostState.GONE)
    assert 5.0 == since(stuck, HostState.STUCK)
    assert [None] * 5 == [
        since(stuck, HostState.GONE),
        since(stuck, HostState.STUCK, done=1),
        since(stuck, HostState.STUCK, bundle="other"),
        since(stuck, HostState.FETCHING),
        since(SupervisorId("new"), HostState.STUCK),
    ]
    here = replace(seen, known_supervisors={gone: PresenceEntry(PresenceRecord(id="gone"), 0)})
    assert waits_since(here, HostProgress(supervisor=gone, state=HostState.GONE), BundleId("etl")) is None
