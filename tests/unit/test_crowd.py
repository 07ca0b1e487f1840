"""The plan of one swarm as a master makes it: how seldom, and who has a place in between."""

from __future__ import annotations

from collections.abc import Mapping

from torrentdist.model.ids import PeerId
from torrentdist.swarm.conductor import Place, Progress
from torrentdist.swarm.crowd import RENEW_SECS, Crowd


class Swarm:
    """Counts how often it is looked at as a whole."""

    def __init__(self, *expected: str) -> None:
        self.crowd = Crowd()
        self.expected = [PeerId(name) for name in expected]
        self.there: dict[PeerId, Progress] = {}
        self.looks = 0

    def comes(self, name: str, now: float) -> Place | None:
        self.there[PeerId(name)] = Progress(0, 100)
        self.crowd.look(PeerId(name), self._lacking, self.expected, now)
        return self.crowd.place(PeerId(name))

    def _lacking(self) -> Mapping[PeerId, Progress]:
        self.looks += 1
        return self.there


def test_a_thousand_that_come_at_once_make_few_plans() -> None:
    """A plan looks at everybody: made for each newcomer, ten thousand of them would take a master minutes."""
    swarm = Swarm()
    places = [swarm.comes(f"s{number:04}", now=number / 1000) for number in range(1000)]
    numbers = [place.number for place in places[-20:] if place is not None]

    assert swarm.looks <= 3 + 1 / RENEW_SECS
    assert len(set(numbers)) == 20


def test_who_is_expected_finds_its_place_kept() -> None:
    """Places would change with everybody who comes, and with them what is under way."""
    swarm = Swarm("a", "b", "c", "d")
    places = [swarm.comes(name, now=0.01 * number) for number, name in enumerate(("c", "a", "d", "b"))]

    assert [Place(2, 4), Place(0, 4), Place(3, 4), Place(1, 4)] == places
    assert 1 == swarm.looks


def test_the_second_of_two_gives_the_first_a_place() -> None:
    """The first would fetch everything from the holders, and the second half of it too."""
    swarm = Swarm()

    assert swarm.comes("a", now=0.0) is None
    assert Place(1, 2) == swarm.comes("b", now=0.01)
    assert Place(0, 2) == swarm.crowd.place(PeerId("a"))
