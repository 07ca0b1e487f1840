"""A master's plan of one swarm: it is renewed seldom, and newcomers get a place at once."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from torrentdist.model.ids import PeerId
from torrentdist.swarm.plan.conductor import PlanPlace, Progress
from torrentdist.swarm.plan.crowd import RENEW_SECS, Crowd


class Swarm:
    """A swarm that counts how often all its peers are looked at."""

    def __init__(self, *expected: str) -> None:
        self.crowd = Crowd()
        self.expected = [PeerId(name) for name in expected]
        self.there: dict[PeerId, Progress] = {}
        self.looks = 0

    def comes(self, name: str, now: float) -> PlanPlace | None:
        self.there[PeerId(name)] = Progress(0, 100)
        self.crowd.look(PeerId(name), self._lacking, self.expected, now)
        return self.crowd.place(PeerId(name))

    def _lacking(self) -> Mapping[PeerId, Progress]:
        self.looks += 1
        return self.there


def test_a_thousand_that_come_at_once_make_few_plans() -> None:
    """A plan looks at every peer: made for each of ten thousand newcomers, it would take a master
    minutes."""
    swarm = Swarm()
    places = [swarm.comes(f"s{number:04}", now=number / 1000) for number in range(1000)]
    numbers = [place.number for place in places[-20:] if place is not None]

    assert swarm.looks <= 3 + 1 / RENEW_SECS
    assert len(set(numbers)) == 20


def test_an_expected_receiver_finds_its_place_kept() -> None:
    """Each newcomer would change all places, and with them the requests under way."""
    swarm = Swarm("a", "b", "c", "d")
    places = [swarm.comes(name, now=0.01 * number) for number, name in enumerate(("c", "a", "d", "b"))]

    assert [PlanPlace(2, 4), PlanPlace(0, 4), PlanPlace(3, 4), PlanPlace(1, 4)] == places
    assert 1 == swarm.looks


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
        swarm.comes(name, now=turn * 2 * RENEW_SECS)
    swarm.comes("d", now=8 * RENEW_SECS)

    assert [PlanPlace(n, 4) for n in range(4)] == [swarm.crowd.place(PeerId(name)) for name in ("d", "b", "c", "a")]


def test_a_place_is_settled_once_those_that_came_together_are_known() -> None:
    """If this failed, the first of many downloads would fetch without a plan for a second, or all
    of them would ask for ever."""
    swarm = Swarm("kept")
    for name in ("kept", "a"):
        swarm.comes(name, now=0.0)
    settled = [swarm.crowd.is_settled(PeerId(name), now=1.0) for name in ("kept", "a", "never came")]

    assert [True, False, True] == settled
    assert swarm.crowd.is_settled(PeerId("a"), now=2.0)


def test_neighbours_are_the_same_from_the_first_to_come_to_the_last() -> None:
    """The first receivers would know all others, and ask so many of them that all links are
    full."""
    names = [f"s{number:02}" for number in range(48)]
    swarm, known = Swarm(*names), dict[str, set[PeerId]]()
    for turn, name in enumerate(names):
        swarm.comes(name, now=0.3 * turn / 48)
        known[name] = set(swarm.crowd.neighbours(PeerId(name), swarm.there.__contains__, now=0.3) or ())
    dialled = {name: near | {PeerId(o) for o, other in known.items() if name in other} for name, near in known.items()}

    assert {10} == {len(near) for near in dialled.values()}


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


def test_a_hundred_thousand_are_looked_at_every_few_seconds() -> None:
    """The plan of a large swarm would take a master's whole processor, four times a second."""
    swarm = Swarm(*(f"e{number}" for number in range(2)))
    for number in range(20_000):
        swarm.comes(f"s{number:05}", now=0.0)
    swarm.comes("s00000", now=1.0)
    after, swarm.looks = swarm.looks, 0
    for tenth in range(40):
        swarm.comes("s00001", now=1.1 + tenth / 10)

    assert after <= 3
    assert 2 == swarm.looks
