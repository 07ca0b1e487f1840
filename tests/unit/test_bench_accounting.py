"""Where the time of a broadcast goes, by what came down the links."""

from __future__ import annotations

import pytest

from bench.swarm.accounting import accounts, lines, mean_of
from bench.swarm.scenario import MIB, Outcome, Scenario
from bench.swarm.watch import settled

RATE = 8 * MIB / 1e6
"""Mbit/s at which one MiB takes a second."""
SCENARIO = Scenario(hosts=2, rate=RATE, size=10)


def outcome(*, gap: tuple[float, float] = (0.0, 0.0), twice: float = 0.0, aside: tuple[str, ...] = ()) -> Outcome:
    """A host whose link is silent for a second, then busy apart from one gap, until all and what
    came twice is there. It is done half a second later."""
    seen, came, now = [(0.25 * n, 0.0) for n in range(5)], 0.0, 1.0
    while came < 1.0 + twice - 1e-9:
        now += 0.25
        came += 0.0 if gap[0] < now <= gap[1] else 0.025
        seen.append((now, came))
    ends = {"a": now + 0.5}
    return Outcome(
        starts={"a": 0.0}, ends=ends, seeder_copies=1.0, received_copies=1.0, progress={"a": seen},
        duplicates=twice, aside=aside,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("gap", "early", "late"), [((4.0, 6.0), 0.2, 0.0), ((10.5, 11.5), 0.05, 0.05), ((0.0, 0.0), 0.0, 0.0)]
)
def test_the_parts_of_a_host_add_up_to_its_time(gap: tuple[float, float], early: float, late: float) -> None:
    """If this failed, the table would blame the wrong part of the swarm."""
    seen = outcome(gap=gap, twice=0.1)
    told = accounts(seen, SCENARIO, 10.0)["a"]

    assert seen.ends["a"] / 10.0 == pytest.approx(told.total)
    assert (early + late) == pytest.approx(told.early + told.late, abs=0.03)
    assert (told.early > told.late) is (early > late) or early == late
    assert 0.1 == pytest.approx(told.start, abs=0.03)
    assert 0.05 == pytest.approx(told.end, abs=0.03)
    assert 1.0 == told.once
    assert 0.1 == pytest.approx(told.twice)
    assert 0.0 == pytest.approx(told.messages, abs=0.06)


def test_a_run_prints_the_mean_host_and_the_last_one() -> None:
    """If this failed, `make swarm` would not say where the time went."""
    told = lines(outcome(), SCENARIO, 10.0)

    assert ["mean host:", "last host:"] == [" ".join(line.split()[:2]) for line in told]
    assert "start 0.1" in told[1]


def test_hosts_that_are_not_measured_and_links_without_limits_have_no_account() -> None:
    """If this failed, one slow host would hide where all others spend their time."""
    assert {} == accounts(outcome(aside=("a",)), SCENARIO, 10.0)
    assert [] == lines(outcome(), Scenario(rate=0.0), 10.0)


def test_the_mean_of_accounts_is_that_of_each_part() -> None:
    """If this failed, the parts of the mean host would not add up."""
    one, other = (accounts(outcome(gap=gap), SCENARIO, 10.0)["a"] for gap in ((0.0, 0.0), (4.0, 6.0)))

    assert (one.total + other.total) / 2 == pytest.approx(mean_of([one, other]).total)


@pytest.mark.parametrize(("read", "told"), [([0, 0, 7, 7, 7, 7, 9], 7), ([5, 5, 5, 5], 5), (list(range(30)), 19)])
def test_a_counter_is_read_until_it_stands(read: list[int], told: int) -> None:
    """If this failed, a holder on a busy machine would seem to have sent nothing."""
    assert told == settled(iter(read).__next__, pause=0.0)
