"""When a peer announces itself to which master."""

from __future__ import annotations

import math

import pytest

from torrentdist.model.backoff import pause_secs
from torrentdist.model.wire.swarm_messages import SwarmAnswer
from torrentdist.swarm.announce_schedule import (
    FIRST_BACKOFF_SECS,
    FORGET_SECS,
    LONGEST_BACKOFF_SECS,
    LONGEST_INTERVAL_SECS,
    MAX_LEARNED,
    POKE_SPACING_SECS,
    AnnouncedMaster,
    AnnounceSchedule,
    MasterContact,
)

M1, M2 = "http://m1:7060", "https://m2:7060"


def answer(interval: float = 60.0) -> SwarmAnswer:
    return SwarmAnswer(interval=interval, you="x")


def known(schedule: AnnounceSchedule) -> dict[str, AnnouncedMaster]:
    return {master.url: master for master in schedule.masters()}


def schedule_of(*configured: str, named: tuple[str, ...] = (), now: float = 0.0) -> AnnounceSchedule:
    schedule = AnnounceSchedule()
    schedule.know(configured, named, now, announcing=set())
    return schedule


@pytest.mark.parametrize(("interval", "wait"), [(60.0, 60.0), (0.0, POKE_SPACING_SECS), (1e9, LONGEST_INTERVAL_SECS)])
def test_the_answer_says_when_the_next_announce_is_due(interval: float, wait: float) -> None:
    """A master that answers nonsense would be asked without a pause, or never again."""
    [master] = schedule_of(M1).masters()
    master.failed("refused", 1.0, 0.5)
    master.begin(7, 9.0)

    assert (7, 9.0, math.inf) == (master.begun, master.announced_at, master.due)
    master.answered(answer(interval), 10.0)
    assert (10.0 + wait, 10.0) == (master.due, master.alive_at)
    assert (0, "", answer(interval)) == (master.failures, master.problem, master.answer)


def test_a_master_that_was_never_asked_has_not_failed() -> None:
    """A new master would show a failure that never was, and be asked again later after its first
    one."""
    schedule = schedule_of(M1)
    [master] = schedule.masters()

    assert (MasterContact(url=M1, failures=0, problem="", next_in=0.0),) == schedule.contacts(0.0)
    assert 0 == master.begun
    master.failed("refused", 10.0, 0.25)
    assert 10.0 + pause_secs(1, FIRST_BACKOFF_SECS, LONGEST_BACKOFF_SECS, 0.25) == master.due


def test_announces_to_a_silent_master_become_rarer() -> None:
    """Every peer would ask a dead master without a pause, or show its last answer for ever."""
    schedule = schedule_of(M1, M2, now=5.0)
    master, other = schedule.masters()
    for one in (master, other):
        one.begin(1, 6.0)
        one.answered(answer(), 6.0)
    for failures in (1, 2, 9):
        while master.failures < failures:
            master.begin(2, 8.0)
            master.failed("refused", 10.0, 0.25)

        assert failures == master.failures
        assert 10.0 + pause_secs(failures, FIRST_BACKOFF_SECS, LONGEST_BACKOFF_SECS, 0.25) == master.due
    assert ("refused", 6.0) == (master.problem, master.alive_at)
    assert {M2: answer()} == schedule.answers()
    assert (
        MasterContact(url=M1, failures=9, problem="refused", next_in=0.0),
        MasterContact(url=M2, failures=0, problem="", next_in=0.0),
    ) == schedule.contacts(100.0)
    assert [master.due - 7.0, 59.0] == [contact.next_in for contact in schedule.contacts(7.0)]


def test_many_pokes_cause_one_announce() -> None:
    """Each change of many would be a request to each master, or wake one that is dead."""
    schedule = schedule_of(M1, M2)
    alive, dead = schedule.masters()
    alive.begin(1, 10.0)
    dead.failed("refused", 10.0, 1.0)
    due = dead.due
    schedule.poke()
    schedule.poke()

    assert (10.0 + POKE_SPACING_SECS, due) == (alive.due, dead.due)
    alive.answered(answer(), 20.0)
    assert 10.0 + POKE_SPACING_SECS == alive.due


def test_masters_are_those_configured_and_those_named() -> None:
    """A peer would miss a master, ask one twice, or follow an address that is none."""
    longest = f"http://{'m' * 293}"
    strange = ("ftp://m3", "m4:7060", f"{longest}m", "")
    schedule = schedule_of(f"{M1}/", "m5:7060", named=(f"{M2}//", M1, longest, *strange), now=3.0)

    assert [M1, "m5:7060", longest, M2] == [master.url for master in schedule.masters()]
    assert {(3.0, 3.0, 0)} == {(master.due, master.alive_at, master.failures) for master in schedule.masters()}


def test_so_many_masters_are_learned_and_no_more() -> None:
    """A hostile answer would make a peer announce itself to thousands of addresses."""
    named = tuple(f"http://m{number:03}" for number in range(MAX_LEARNED + 9))
    schedule = schedule_of("http://own", named=("http://other",))
    schedule.know(["http://own"], named, 1.0, announcing=set())

    assert {"http://own", "http://other", *named[: MAX_LEARNED - 1]} == known(schedule).keys()
    schedule.know([], [*named, "http://a"], 1.0, announcing=set())
    assert MAX_LEARNED + 1 == len(schedule.masters())
    assert "http://a" not in known(schedule)


def test_a_dead_master_that_is_named_again_is_asked_at_once() -> None:
    """A master that is back would wait for its announces for as long as the pause is."""
    schedule = schedule_of(M1, M2)
    dead, alive = schedule.masters()
    for _ in range(9):
        dead.failed("refused", 10.0, 1.0)
    alive.due, pause = 70.0, dead.due
    schedule.know([M1, M2], [M1, M2], 11.0, announcing=set())
    assert (11.0, 70.0) == (dead.due, alive.due)
    dead.due = pause
    schedule.know([M1, M2], [M1, M2], 12.0, announcing=set())
    assert pause == dead.due
    schedule.know([M1, M2], [], 13.0, announcing=set())
    dead.due = 13.5
    schedule.know([M1, M2], [M1], 14.0, announcing=set())
    assert 13.5 == dead.due


@pytest.mark.parametrize(
    ("failures", "configured", "named", "announcing", "secs", "stays"),
    [
        (1, [], [], set(), FORGET_SECS + 0.1, False),
        (1, [], [], set(), FORGET_SECS, True),
        (0, [], [], set(), FORGET_SECS + 0.1, True),
        (1, [M1], [], set(), FORGET_SECS + 0.1, True),
        (1, [], [M1], set(), FORGET_SECS + 0.1, True),
        (1, [], [], {M1}, FORGET_SECS + 0.1, True),
    ],
)
def test_only_a_learned_master_that_is_dead_for_long_is_forgotten(
    failures: int, configured: list[str], named: list[str], announcing: set[str], secs: float, stays: bool
) -> None:
    """A peer would lose a master that is there, or announce itself for ever to one that is gone."""
    schedule = schedule_of(named=(M1, M2), now=50.0)
    for _ in range(failures):
        known(schedule)[M1].failed("refused", 60.0, 0.5)
    schedule.know(configured, named, 50.0 + secs, announcing=announcing)

    assert stays == (M1 in known(schedule))
    assert M2 in known(schedule)
