"""A master's plan of one swarm: it is renewed seldom, and newcomers get a place at once."""

from __future__ import annotations

import time
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.model.ids import PeerId
from torrentdist.swarm.plan.conductor import SETTLED_SECS, SHARES, PlanPlace, Progress
from torrentdist.swarm.plan.crowd import JUDGE_SECS, MORE_SECS, MOST_JUDGED, Crowd
from torrentdist.swarm.plan.expected_hosts import MOST_STEPS, Expected, ExpectedHosts
from torrentdist.swarm.plan.neighbours import FULL_MESH, spot_of
from torrentdist.swarm.plan.zoned_crowds import ZonedCrowds


class Swarm:
    """A swarm that counts how often all its peers are looked at."""

    def __init__(self, *expected: str) -> None:
        self.crowd = Crowd()
        self.expected = [PeerId(name) for name in expected]
        self.there: dict[PeerId, Progress] = {}
        self.looks = 0

    def comes(self, name: str, now: float, done: int = 0) -> PlanPlace | None:
        self.there[PeerId(name)] = Progress(done, 100)
        self.crowd.come(PeerId(name), now)
        self.crowd.expect(self.expected, lambda peer: False)
        self.crowd.judge(self._progress, now)
        return self.crowd.place(PeerId(name))

    def _progress(self, peer: PeerId) -> Progress | None:
        self.looks += 1
        return self.there.get(peer)


def test_a_thousand_that_come_at_once_are_looked_at_seldom() -> None:
    """If each newcomer made a master look at all others, ten thousand would take it minutes."""
    swarm = Swarm()
    places = [swarm.comes(f"s{number:04}", now=number / 1000) for number in range(1000)]
    numbers = [place.number for place in places[-20:] if place is not None]

    assert swarm.looks <= 4 * (MOST_JUDGED + SHARES)
    assert len(set(numbers)) == 20


def test_an_expected_receiver_finds_its_place_kept() -> None:
    """Each newcomer would change all places, and with them the requests under way."""
    swarm = Swarm("a", "b", "c", "d")
    places = [swarm.comes(name, now=0.01 * number) for number, name in enumerate(("c", "a", "d", "b"))]

    assert [PlanPlace(2, 4), PlanPlace(0, 4), PlanPlace(3, 4), PlanPlace(1, 4)] == places


def test_the_second_of_two_gives_the_first_a_place() -> None:
    """The first would fetch everything from the holders, and the second would fetch half of it
    again."""
    swarm = Swarm()

    assert swarm.comes("a", now=0.0) is None
    assert PlanPlace(1, 2) == swarm.comes("b", now=0.01)
    assert PlanPlace(0, 2) == swarm.crowd.place(PeerId("a"))


def test_a_newcomer_that_nobody_expected_has_the_last_place() -> None:
    """In any other order it would move all the others' places, and with them what is under way."""
    swarm = Swarm()
    for turn, name in enumerate(("d", "b", "c", "a")):
        swarm.comes(name, now=turn * 2 * JUDGE_SECS)
    swarm.comes("d", now=8 * JUDGE_SECS)

    assert [PlanPlace(n, 4) for n in range(4)] == [swarm.crowd.place(PeerId(name)) for name in ("d", "b", "c", "a")]


def test_newcomers_get_the_places_after_all_that_have_a_share() -> None:
    """Two receivers would have one share, or a share would have no receiver."""
    swarm = Swarm()
    for name, done in (("a", 50), ("b", 50), ("c", 50), ("slow", 0)):
        swarm.comes(name, 100.0, done)
    assert [PlanPlace(n, 4) for n in range(4)] == [swarm.comes(name, 101.0, 50) for name in ("a", "b", "c", "slow")]
    swarm.there[PeerId("slow")] = Progress(0, 100)
    swarm.comes("a", 104.0, 50)

    assert PlanPlace(SHARES, SHARES) == swarm.crowd.place(PeerId("slow"))
    assert [PlanPlace(3, 4), PlanPlace(4, 5)] == [swarm.comes(name, 104.1) for name in ("d", "e")]


def test_no_receiver_is_slow_before_it_had_time() -> None:
    """A receiver that has just come would lose its share."""
    swarm = Swarm()
    for now in (100.0, 101.0):
        for name, done in (("a", 50), ("b", 50), ("c", 50), ("slow", 0)):
            swarm.comes(name, now, done)

    assert PlanPlace(3, 4) == swarm.crowd.place(PeerId("slow"))


def test_a_place_is_settled_once_those_that_came_together_are_known() -> None:
    """If this failed, the first of many downloads would fetch without a plan for a second, or all
    of them would ask for ever."""
    swarm = Swarm("kept")
    for name in ("kept", "a"):
        swarm.comes(name, now=0.0)
    settled = [swarm.crowd.is_settled(PeerId(name), now=1.0) for name in ("kept", "a", "never came")]

    assert [True, False, True] == settled
    swarm.comes("a", now=0.2)
    assert [False, True] == [swarm.crowd.is_settled(PeerId("a"), SETTLED_SECS + more) for more in (0.0, 0.1)]


def circle(count: int) -> list[PeerId]:
    """Returns so many receivers in the order of their circle."""
    return sorted((PeerId(f"s{number:02}") for number in range(count)), key=spot_of)


def large(count: int, there: Collection[int], now: float = 2.0) -> Swarm:
    """Returns a swarm of so many expected receivers, of which those in these places of the circle
    came at `now`."""
    swarm = Swarm(*(f"s{number:02}" for number in range(count)))
    for place in there:
        swarm.comes(circle(count)[place], now)
    return swarm


def places_near(swarm: Swarm, place: int, now: float) -> list[int] | None:
    members = circle(len(swarm.crowd))
    near = swarm.crowd.neighbours(members[place], swarm.there.__contains__, now)
    return None if near is None else [members.index(peer) for peer in near]


@pytest.mark.parametrize(
    ("there", "at_once", "settled"),
    [([0, 5, 6, 33, 34], [], [5, 34]), ([0, 1, 5, 34], [1], [1, 34]), ([0, 1, 39], [1, 39], [1, 39]), ([0], [], [])],
)
def test_absent_neighbours_are_replaced_by_the_next_that_are_there(
    there: list[int], at_once: list[int], settled: list[int]
) -> None:
    """A receiver whose neighbours are down would get no piece, or one would be dialled by all."""
    swarm = large(40, there)

    assert at_once == places_near(swarm, 0, 2.0 + SETTLED_SECS)
    assert settled == places_near(swarm, 0, 2.1 + SETTLED_SECS)


def test_receivers_of_a_small_swarm_and_strangers_have_no_neighbours() -> None:
    """A swarm would be split that is small enough for each to know all."""
    stranger = PeerId("stranger")

    assert places_near(large(FULL_MESH, [0, 1]), 0, 2.0) is None
    assert places_near(large(FULL_MESH + 1, [0, 1]), 0, 2.0) == [1]
    assert large(40, [0, 1]).crowd.neighbours(stranger, lambda _: True, 2.0) is None


def test_a_newcomer_of_a_large_swarm_joins_its_circle() -> None:
    """A receiver that nobody expected would connect to all others, or to none."""
    swarm = large(30, range(30))
    swarm.comes("s30", 2.1)  # the next in the list of names
    place = circle(31).index(PeerId("s30"))

    assert [(place + far) % 31 for far in (1, -1, 3, -3, 9, -9)] == places_near(swarm, place, 2.1)
    assert place in (places_near(swarm, (place + 1) % 31, 2.1) or [])


def test_receivers_with_a_share_are_spread_over_the_circle() -> None:
    """The first hosts by name have the shares. If they were each other's neighbours, the others
    would long have nothing to request: 400 hosts took 8 % longer."""
    with_share = {*(f"s{number:03}" for number in range(SHARES))}
    swarm = Swarm(*(f"s{number:03}" for number in range(400)))
    for number in range(400):
        swarm.comes(f"s{number:03}", 2.0)
    told = [{*(swarm.crowd.neighbours(peer, swarm.there.__contains__, 2.0) or ())} for peer in swarm.there]

    assert 115 <= sum(not with_share.isdisjoint(near) for near in told)


def test_holders_are_told_to_those_that_need_them() -> None:
    """Hundreds would ask the holders, or a receiver that gets nothing could ask nobody."""
    names = [f"s{number:02}" for number in range(SHARES + 9)]
    swarm = Swarm(*names)
    for name in names:
        swarm.comes(name, now=2.0)

    def needs(number: int, done: int, secs: float) -> bool:
        return swarm.crowd.needs_holders(PeerId(f"s{number:02}"), done, 2.0 + secs)

    assert [True, False, True] == [needs(number, 0, 0.0) for number in (SHARES - 1, SHARES, 99)]
    assert not needs(SHARES, 0, MORE_SECS + 0.1)  # nobody has anything yet
    swarm.there = {peer: Progress(50, 100) for peer in swarm.there}
    swarm.crowd.judge(swarm.there.get, 2.0 + MORE_SECS)
    assert [False, True, False] == [
        needs(SHARES, done, MORE_SECS + more) for done, more in ((0, 0.0), (0, 0.1), (1, 0.1))
    ]


def test_neighbours_are_the_same_from_the_first_to_come_to_the_last() -> None:
    """The first receivers would know all others, and ask so many of them that all links are
    full."""
    names = [f"s{number:02}" for number in range(48)]
    swarm, known = Swarm(*names), dict[str, set[PeerId]]()
    for turn, name in enumerate(names):
        swarm.comes(name, now=0.3 * turn / 48)
        known[name] = set(swarm.crowd.neighbours(PeerId(name), swarm.there.__contains__, now=0.3) or ())
    dialled = {name: near | {PeerId(o) for o, other in known.items() if name in other} for name, near in known.items()}

    assert {6} == {len(near) for near in dialled.values()}


@given(there=st.sets(st.integers(0, 199), min_size=1))
def test_receivers_that_came_are_connected_whatever_others_do(there: set[int]) -> None:
    """Hosts that are down would split the others, and some of them would never get all pieces."""
    swarm = Swarm(*(f"s{number:03}" for number in range(200)))
    for number in there:
        swarm.comes(f"s{number:03}", now=0.0)
    edges = {peer: swarm.crowd.neighbours(peer, swarm.there.__contains__, now=2.0) or () for peer in swarm.there}
    reached = border = {next(iter(swarm.there))}
    while border:
        border = {other for peer in border for other in edges[peer]} - reached
        reached = reached | border

    assert swarm.there.keys() == reached


def test_a_receiver_that_goes_gives_its_share_to_the_last_one_and_moves_no_other() -> None:
    """If this failed, all requests under way would change with each receiver that is done."""
    swarm = Swarm()
    for number in range(40):
        swarm.comes(f"s{number:02}", now=0.0)
    swarm.crowd.go(PeerId("s03"), complete=True)
    places = [swarm.crowd.place(PeerId(f"s{number:02}")) for number in range(40)]

    assert [PlanPlace(n, 39) for n in range(3)] == places[:3]
    assert [None, PlanPlace(3, 39)] == [places[3], places[39]]
    assert [PlanPlace(n, 39) for n in range(4, 39)] == places[4:39]


def test_a_place_is_kept_for_one_that_is_expected_until_it_has_everything() -> None:
    """If this failed, a host that restarts in the middle would lose its share, or one that is done
    would keep a share from the others."""
    swarm = Swarm("a", "b", "c")
    for name in ("a", "b", "c"):
        swarm.comes(name, now=0.0)
    swarm.crowd.go(PeerId("b"))
    restarting = swarm.crowd.place(PeerId("c"))
    swarm.crowd.go(PeerId("b"), complete=True)

    assert [PlanPlace(2, 3), PlanPlace(1, 2)] == [restarting, swarm.crowd.place(PeerId("c"))]


def test_a_receiver_that_comes_back_begins_anew() -> None:
    """If this failed, a host that restarts would get no place, or be judged slow for the time that
    it was away."""
    swarm = Swarm()
    for name in ("a", "b", "c"):
        swarm.comes(name, now=0.0)
    swarm.crowd.go(PeerId("a"))
    place = swarm.comes("a", now=100.0)

    assert PlanPlace(2, 3) == place
    assert not swarm.crowd.is_settled(PeerId("a"), now=100.0 + SETTLED_SECS / 2)


def test_places_of_those_that_are_no_longer_expected_are_freed() -> None:
    """If this failed, pieces would wait for hosts that nobody sends any more."""
    swarm = Swarm("a", "b", "c", "d")
    swarm.comes("d", now=0.0)
    swarm.expected = [PeerId("d"), PeerId("e")]

    assert PlanPlace(0, 2) == swarm.comes("d", now=0.1)


def test_a_slow_one_among_many_loses_its_share_and_gets_one_again() -> None:
    """If this failed, one bad link among hundreds would keep its share from all of them."""
    count = 3 * MOST_JUDGED
    swarm = Swarm()
    for number in range(count):
        swarm.comes(f"s{number:04}", now=0.0, done=50)
    swarm.comes("s0005", now=4.0, done=0)
    slow = swarm.crowd.place(PeerId("s0005"))
    swarm.there[PeerId("s0005")] = Progress(60, 100)
    for look in range(2 * count // MOST_JUDGED):
        swarm.comes("s0001", now=5.0 + look, done=50)

    assert PlanPlace(count - 1, count - 1) == slow
    assert PlanPlace(count - 1, count) == swarm.crowd.place(PeerId("s0005"))


def test_a_hundred_thousand_cost_as_much_as_a_few_hundred() -> None:
    """If this failed, the plan of a large swarm would take a master's whole processor."""
    swarm = Swarm()
    for number in range(100_000):
        swarm.there[PeerId(f"s{number:05}")] = Progress(0, 100)
        swarm.crowd.come(PeerId(f"s{number:05}"), 0.0)
    swarm.comes("s00001", now=1.0)
    began = time.process_time()
    for number in range(500):
        swarm.crowd.go(PeerId(f"s{number:05}"), complete=True)
        swarm.comes(f"t{number:05}", now=1.0)

    assert swarm.looks <= MOST_JUDGED + SHARES
    assert (time.process_time() - began) / 1000 < 0.005, "seconds for each that comes or goes"


@given(
    st.lists(st.tuples(st.sampled_from(["expect", "drop", "come", "go", "complete"]), st.integers(0, 9)), max_size=50)
)
def test_expected_hosts_that_change_one_by_one_have_the_places_of_the_whole_list(steps: list[tuple[str, int]]) -> None:
    """If this failed, a host that is told to fetch while others do would have another's place."""
    expected = ExpectedHosts()
    followed, whole, complete = ZonedCrowds(), ZonedCrowds(), set[PeerId]()

    def look(crowds: ZonedCrowds, hosts: Expected) -> None:
        crowds.expect(hosts, lambda peer: "", complete.__contains__)

    for what, number in steps:
        peer = PeerId(f"s{number}")
        if what in ("expect", "drop"):
            expected.set(peer, expected=what == "expect")
        for crowds in (followed, whole):
            if what == "come" and peer not in complete:
                crowds.come(peer, "", 0.0)
            elif what in ("go", "complete"):
                crowds.go(peer, complete=what == "complete")
        complete |= {peer} if what == "complete" else set()
        look(followed, expected)
        look(whole, tuple(expected))
    names = [PeerId(f"s{number}") for number in range(10)]

    assert [whole.of("").place(peer) for peer in names] == [followed.of("").place(peer) for peer in names]
    assert whole.receivers() == followed.receivers()
    assert list(whole.of("").members()) == list(followed.of("").members())


def test_one_more_expected_host_costs_the_plan_no_look_at_all_others() -> None:
    """If this failed, each host that registers would take a master 90 ms while 100,000 fetch."""
    expected, crowds, asked = ExpectedHosts(PeerId(f"s{number}") for number in range(5000)), ZonedCrowds(), [0]

    def zone_of(peer: PeerId) -> str:
        asked[0] += 1
        return ""

    crowds.expect(expected, zone_of, lambda peer: False)
    expected.set(PeerId("new"), expected=True)
    asked[0] = 0
    crowds.expect(expected, zone_of, lambda peer: False)

    assert 1 == asked[0]
    assert PlanPlace(5000, 5001) == crowds.of("").place(PeerId("new"))


def test_who_missed_too_many_changes_looks_at_all_hosts() -> None:
    """If this failed, a swarm that nobody asked about for long would plan for hosts that left."""
    expected = ExpectedHosts([PeerId("a")])
    for turn in range(MOST_STEPS + 1):
        expected.set(PeerId("b"), expected=turn % 2 == 0)

    assert expected.since(0) is None
    assert [PeerId("b")] == expected.since(1)
    assert [] == expected.since(expected.state)
