"""Distributions in waves: who is told when, and what stops the rest."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_size import examples

from torrentdist.master.policies.wave_plan import (
    AwaitHosts,
    EndDistribution,
    HostOutcome,
    TellHosts,
    newcomers,
    next_step,
    waves,
)
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState
from torrentdist.model.wire.fleet_messages import HostState

PATIENCE = 30.0
LONG = 10_000.0


def record(hosts: int, **how: int | bool) -> DistributionRecord:
    names = tuple(SupervisorId(f"h{n:02}") for n in range(hosts))
    return DistributionRecord(bundle=BundleId("etl"), hosts=names, **how)  # type: ignore[arg-type]


def outcome(state: HostState) -> HostOutcome:
    return HostOutcome(state, LONG, "its disk is full" if state is HostState.STUCK else "")


def play(order: DistributionRecord, ends: Mapping[SupervisorId, HostState]) -> tuple[list[set[str]], EndDistribution]:
    """Plays a distribution in which each host ends as given. Returns the hosts told in each step,
    and the end."""
    told: set[SupervisorId] = set()
    steps: list[set[str]] = []
    for _ in range(2 * len(order.hosts) + 3):
        step = next_step(order, told, {host: outcome(ends[host]) for host in told}, PATIENCE)
        match step:
            case TellHosts(hosts):
                assert not told & set(hosts)
                waiting = {host: HostOutcome(HostState.FETCHING) for host in hosts}
                done = {host: outcome(ends[host]) for host in told}
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
