"""When a supervisor counts as silent, and when a daemon counts as stuck."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from torrentdist.host.event_loop.watchdog import Watchdog
from torrentdist.master.jobs.heartbeats import Silence
from torrentdist.model.ids import SupervisorId

H1, H2 = SupervisorId("h1"), SupervisorId("h2")
LONG = 1000.0


def test_only_what_a_leader_could_have_heard_counts() -> None:
    """D17: a new leader would move the workers of every host that has not spoken to it yet."""
    silence = Silence(30.0)
    silence.heard(H1, 100.0)

    assert frozenset() == silence.of([H1, H2], 101.0, LONG)
    assert 29.0 == silence.due_in(101.0)
    assert {H1} == silence.of([H1, H2], 130.5, LONG)
    assert {H1: 100.0, H2: 101.0} == silence.began([H1, H2], 130.5, LONG, {})
    assert {H1: 123.5} == silence.began([H1], 130.5, 7.0, {})
    assert frozenset() == silence.of([H1, H2], 200.0, listened=30.0)
    silence.heard(H1, 200.0)
    assert {H2} == silence.of([H1, H2], 201.0, LONG)
    assert frozenset() == silence.of([H1], 202.0, LONG)
    assert frozenset() == silence.of([H1, H2], 203.0, LONG), "one that registers again begins anew"


def test_a_new_leader_counts_a_silence_on_once_it_has_listened() -> None:
    """Under leaders that change every 20 s, the workers of a host that hangs would never move."""
    silence, noted = Silence(30.0), {H1: 75.0, H2: 75.0}

    assert frozenset() == silence.of([H1, H2], 100.0, 0.0, noted)
    silence.heard(H2, 104.0)
    assert frozenset() == silence.of([H1, H2], 108.9, 8.9, noted), "three heartbeats may still come"
    assert {H1} == silence.of([H1, H2], 109.0, 9.0, noted)
    silence.heard(H1, 110.0)
    assert frozenset() == silence.of([H1, H2], 111.0, 11.0, noted)


def test_who_is_gone_is_forgotten() -> None:
    """A leader's memory would grow with each name that was ever heard."""
    silence = Silence(30.0)
    for number in range(1000):
        silence.heard(SupervisorId(f"h{number}"), 100.0)
    silence.of([H1], 101.0, LONG, {H2: 75.0})

    assert {H1, H2} == silence._heard.keys()


@pytest.mark.parametrize(
    ("supervisors", "limit", "secs"),
    [(1, 30.0, 3.0), (24, 30.0, 3.0), (48, 30.0, 6.0), (1000, 30.0, 7.5), (1000, 5.0, 3.0), (1000, 0.0, 15.0)],
)
def test_many_come_less_often_and_still_long_before_they_are_called_silent(
    supervisors: int, limit: float, secs: float
) -> None:
    """If this fails, a leader of a thousand hosts only handles heartbeats, or moves workers of
    hosts that it told to report later."""
    assert Silence(limit).heartbeat_secs(supervisors) == secs


def test_silence_may_be_allowed() -> None:
    """If this fails, `jobs.silent_secs = 0` moves every worker at once."""
    silence = Silence(0.0)

    assert frozenset() == silence.of([H1], 0.0, LONG)
    assert frozenset() == silence.of([H1], 1e9, 1e9)


@pytest.mark.anyio
async def test_a_loop_that_is_stuck_ends_its_daemon() -> None:
    """C7: a supervisor that hangs would keep its session alive, and with it places that it does not
    fill."""
    ended, fine = threading.Event(), threading.Event()
    watchdog = Watchdog(patience=3, look_secs=0.05, end=ended.set)
    patient = Watchdog(patience=10_000, look_secs=0.05, end=fine.set)
    watchdog.start()
    patient.start()
    await asyncio.sleep(0)
    deadline = time.monotonic() + 30.0
    while not ended.is_set() and time.monotonic() < deadline:
        time.sleep(0.01)  # noqa: ASYNC251  # the loop is stuck: that is what this is about
    patient.stop()

    assert (True, False) == (ended.is_set(), fine.is_set())


@pytest.mark.anyio
async def test_a_loop_that_turns_is_left_alone() -> None:
    """If this fails, healthy daemons end for no reason."""
    ended = threading.Event()
    watchdog = Watchdog(patience=30, look_secs=0.02, end=ended.set)
    watchdog.start()
    turns = 0
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        await asyncio.sleep(0.01)
        turns += 1
    watchdog.stop()

    assert turns > 0
    assert not ended.is_set()
